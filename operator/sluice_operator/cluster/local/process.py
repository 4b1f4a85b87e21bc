"""One child process in its own process group, so that no process of the group outlives it."""

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SHIM: Final = str(Path(__file__).with_name("shim.py"))


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of an engine on 127.0.0.1."""

    data: int
    admin: int


def free_ports() -> Ports:
    """Return two ports that are free now.

    If another program takes one first, the engine exits with `PortTaken`, and the next start uses two other ports.
    """
    with socket.socket() as data, socket.socket() as admin:
        data.bind(("127.0.0.1", 0))
        admin.bind(("127.0.0.1", 0))
        return Ports(data.getsockname()[1], admin.getsockname()[1])


class Child:
    """A running child process and its process group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Wrap a started process; callers use `start`."""
        self._process = process

    @classmethod
    async def start(cls, argv: list[str], env: dict[str, str], log: Path) -> "Child":
        """Start `argv` (first an absolute program path) with its output appended to `log`. Raises OSError."""
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", SHIM, str(os.getpid()), *argv,
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=asyncio.subprocess.STDOUT,
                env=env, start_new_session=True,
            )  # fmt: skip
        return cls(process)

    @property
    def pid(self) -> int:
        """Process id of the child, which is also the id of its group."""
        return self._process.pid

    async def wait(self) -> int:
        """Wait for the child, kill the rest of its group, and return the exit code (128 + n for signal n)."""
        code = await self._process.wait()
        self.kill()  # processes that remain in the group have no parent to end them
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        """Send SIGTERM to the child only, which ends its own children."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to the whole group."""
        with suppress(ProcessLookupError, PermissionError):  # macOS returns EPERM for a group of zombies
            os.killpg(self._process.pid, signal.SIGKILL)


def tail(log: Path, *, lines: int = 20, limit: int = 8192) -> str:
    """Return the last lines of a log, from at most its last `limit` bytes; empty if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit))
            text = file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
