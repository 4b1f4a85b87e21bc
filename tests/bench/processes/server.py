"""Starts a `sluice serve` for the duration of a measurement."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from sluice import contract

START_SECONDS = 120.0
STOP_SECONDS = 20.0


class ServerFailed(Exception):
    """The server did not start; the message names its log."""


@asynccontextmanager
async def served(model: Path, threads: int, concurrency: int, log: Path) -> AsyncIterator[str]:
    """The address of a ready engine. Raises ServerFailed if it does not become ready.

    The admission limit is held at `concurrency` or more: on a busy machine it would fall to keep the inter-token
    target, and this measures throughput at a known batch size.
    """
    port, admin_port = free_ports(2)
    command = [sys.executable, "-m", "sluice", "serve", str(model), "--served-name", "tiny"]
    command += ["--port", str(port), "--admin-port", str(admin_port), "--grace-seconds", "0", "--itl-ms", "60000"]
    command += ["--threads", str(threads), "--concurrency-min", str(concurrency), "--kv-size", "256Mi"]
    async with AsyncExitStack() as stack:
        file = stack.enter_context(log.open("w"))
        process = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=subprocess.STDOUT)
        stack.push_async_callback(stop, process)
        await wait_ready(process, f"http://127.0.0.1:{admin_port}{contract.PATH_READYZ}", log)
        yield f"http://127.0.0.1:{port}"


def free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


async def wait_ready(process: asyncio.subprocess.Process, url: str, log: Path, seconds: float = START_SECONDS) -> None:
    """Return once `url` answers with 200. Raises ServerFailed."""
    until = time.monotonic() + seconds
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        while process.returncode is None and time.monotonic() < until:
            try:
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            except (aiohttp.ClientError, TimeoutError):
                pass  # not listening yet
            await asyncio.sleep(0.2)
    raise ServerFailed(
        f"the server was not ready within {seconds:.0f} s (exit code {process.returncode}); its log is {log}"
    )


async def stop(process: asyncio.subprocess.Process) -> None:
    """End the process: SIGTERM, and SIGKILL after STOP_SECONDS."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
