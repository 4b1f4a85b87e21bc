"""A server of the comparison, loaded all the time and stopped while another side is measured."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.processes.process_group import last_words, signal_group
from tests.bench.processes.server import ServerFailed, wait_ready

START_SECONDS: Final = 600.0  # vLLM compiles at its start


@dataclass(frozen=True, slots=True)
class Command:
    """How a server is started. `more` is added to the environment; `health` answers with 200 once it is ready."""

    arguments: Sequence[str]
    port: int
    health: str
    more: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that listens at 127.0.0.1:`port` and leads a process group."""

    port: int
    pid: int

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """It runs meanwhile."""
        signal_group(self.pid, signal.SIGCONT)
        try:
            yield
        finally:
            signal_group(self.pid, signal.SIGSTOP)


@contextlib.asynccontextmanager
async def started(command: Command, log: Path) -> AsyncIterator[Server]:
    """A ready server that is stopped for now; killed at the end with its children. Raises ServerFailed."""
    with log.open("w") as file:
        process = await asyncio.create_subprocess_exec(
            *command.arguments,
            env=os.environ | dict(command.more),
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(command.port, process.pid)
    try:
        try:
            await wait_ready(process, f"http://127.0.0.1:{command.port}{command.health}", log, START_SECONDS)
        except ServerFailed as failure:
            raise ServerFailed(f"{failure}: {last_words(log)}") from failure
        signal_group(process.pid, signal.SIGSTOP)
        yield server
    finally:
        signal_group(process.pid, signal.SIGKILL)
        await process.wait()
