"""Starts null or real engines, the plain proxy and the gateway as processes for the duration of a measurement."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluice import contract
from tests.bench.server import free_ports, stop, wait_ready

START_SECONDS: Final = 60.0
KV_SIZE: Final = "32Mi"  # of a paced engine: 16,384 tokens of the tiny model


@dataclass(frozen=True, slots=True)
class Started:
    """A process that serves at `urls`."""

    pid: int
    urls: tuple[str, ...]


@asynccontextmanager
async def null_engines(count: int) -> AsyncIterator[Started]:
    """URLs in pairs: data port, admin port."""
    async with _python("-m", "tests.bench.gateway.null_engine", str(count)) as process:
        yield await _ports(process)


@asynccontextmanager
async def plain_proxy(upstream: str) -> AsyncIterator[Started]:
    """One URL."""
    async with _python("-m", "tests.bench.gateway.plain_proxy", upstream) as process:
        yield await _ports(process)


@asynccontextmanager
async def gateway(engines: Started, *options: str) -> AsyncIterator[Started]:
    """URLs: clients' port, admin port."""
    pairs = zip(engines.urls[::2], engines.urls[1::2], strict=True)
    backends = [part for data, admin in pairs for part in ("--backend", f"{data},{admin}")]
    arguments = ("--port", "0", "--admin-port", "0", "--grace-seconds", "0", "--drain-seconds", "0")
    async with _python("-m", "sluice", "gateway", *backends, *arguments, *options, "--log-format", "json") as process:
        stream = process.stderr
        if stream is None:
            raise RuntimeError("the process has no stderr")
        line = json.loads(await asyncio.wait_for(stream.readline(), START_SECONDS))
        reader = asyncio.create_task(_discard(stream))
        try:
            yield Started(process.pid, tuple(re.findall(r"http://[\d.:]+", line["message"])))
        finally:
            reader.cancel()


async def _discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass


@asynccontextmanager
async def _python(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _ports(process: asyncio.subprocess.Process) -> Started:
    if process.stdout is None:
        raise RuntimeError("the process has no stdout")
    line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
    return Started(process.pid, tuple(f"http://127.0.0.1:{port}" for port in json.loads(line)))


@asynccontextmanager
async def paced_engines(model: Path, paces: Sequence[str], folder: Path) -> AsyncIterator[Started]:
    """Real engines of the model, one per step-time model; their logs are in `folder`. URLs in pairs as of null engines."""
    async with AsyncExitStack() as stack:
        ports = free_ports(2 * len(paces))
        urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
        started = []
        for number, pace in enumerate(paces):
            options = ["--pace", pace, "--kv-size", KV_SIZE, "--threads", "1", "--grace-seconds", "0"]
            options += ["--port", str(ports[2 * number]), "--admin-port", str(ports[2 * number + 1])]
            log = folder / f"engine-{number}.log"
            file = stack.enter_context(log.open("w"))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "sluice", "serve", str(model), "--served-name", "tiny", *options,
                stdout=file, stderr=file,
            )  # fmt: skip
            stack.push_async_callback(stop, process)
            started.append((process, urls[2 * number + 1] + contract.PATH_READYZ, log))
        for process, url, log in started:
            await wait_ready(process, url, log)
        yield Started(0, urls)
