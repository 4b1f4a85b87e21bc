"""Starts null or real engines, the plain proxy and the gateway as processes for the duration of a measurement."""

import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluice import contract
from tests.bench.processes.server import free_ports, stop, wait_ready

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


class Engine:
    """A real engine that can be killed and started again on the same two ports. `killed_at` in Unix time."""

    def __init__(self, ports: Sequence[int], log: Path) -> None:
        self.urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
        self.name = f"127.0.0.1:{ports[0]}"
        self.killed_at: list[float] = []
        self._ports = ports
        self._log = log
        self._command: tuple[str, ...] = ()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *command: str) -> None:
        """Start it; without a command with that of before."""
        self._command = command or self._command
        with self._log.open("a") as file:
            self._process = await asyncio.create_subprocess_exec(*self._command, stdout=file, stderr=file)

    async def ready(self) -> None:
        """Return once it accepts requests. Raises ServerFailed."""
        if self._process is not None:
            await wait_ready(self._process, self.urls[1] + contract.PATH_READYZ, self._log)

    async def kill(self) -> None:
        """End it without a warning."""
        if self._process is not None:
            self.killed_at.append(time.time())
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """End it."""
        if self._process is not None:
            await stop(self._process)


@asynccontextmanager
async def killable_engine(engine: Engine, model: Path, options: Sequence[str]) -> AsyncIterator[None]:
    """Starts the engine, and stops the one that runs at the end."""
    ports = [url.rpartition(":")[2] for url in engine.urls]
    await engine.start(
        sys.executable, "-m", "sluice", "serve", str(model), "--served-name", "tiny", "--kv-size", KV_SIZE, "--threads", "1",
        "--grace-seconds", "0", "--port", ports[0], "--admin-port", ports[1], *options,
    )  # fmt: skip
    try:
        yield
    finally:
        await engine.stop()


@asynccontextmanager
async def gateway(engines: Started, *options: str, log: Path | None = None) -> AsyncIterator[Started]:
    """URLs: clients' port, admin port. `log` gets what the gateway logs after its start."""
    pairs = zip(engines.urls[::2], engines.urls[1::2], strict=True)
    backends = [part for data, admin in pairs for part in ("--backend", f"{data},{admin}")]
    arguments = ("--port", "0", "--admin-port", "0", "--grace-seconds", "0", "--drain-seconds", "0")
    command = ("-m", "sluice", "gateway", *backends, *arguments, *options, "--log-format", "json")
    with tempfile.TemporaryDirectory() as folder:
        path = log or Path(folder) / "log"
        with path.open("wb") as file:  # not a pipe: to read it would cost the measuring process
            async with _python(*command, stderr=file.fileno()) as process:
                line = await asyncio.to_thread(_first_line, path)
                urls = tuple(re.findall(r"http://[\d.:]+", json.loads(line)["message"]))
                yield Started(process.pid, urls)


def _first_line(path: Path) -> bytes:
    """The first line of a file that is being written. Raises TimeoutError."""
    end = time.monotonic() + START_SECONDS
    while b"\n" not in (found := path.read_bytes()):
        if time.monotonic() > end:
            raise TimeoutError(f"{path} has no line after {START_SECONDS:g} s")
        time.sleep(0.05)  # in a thread: a file says nothing when it grows
    return found.partition(b"\n")[0]


@asynccontextmanager
async def _python(*arguments: str, stderr: int | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=stderr
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
async def paced_engines(
    model: Path, paces: Sequence[str], folder: Path, kv_size: str = KV_SIZE
) -> AsyncIterator[Started]:
    """Real engines of the model, one per step-time model; their logs are in `folder`. URLs in pairs as of null engines."""
    async with AsyncExitStack() as stack:
        ports = free_ports(2 * len(paces))
        urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
        started = []
        for number, pace in enumerate(paces):
            options = ["--pace", pace, "--kv-size", kv_size, "--threads", "1", "--grace-seconds", "0"]
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
