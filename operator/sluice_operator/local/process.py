"""One child process in a process group of its own, so that nothing it started outlives it."""

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
    """Where an engine listens, on 127.0.0.1."""

    data: int
    admin: int


def free_ports() -> Ports:
    """Two ports that are free now. A race with another program shows as the engine's own `PortTaken`; the next start
    takes two others."""
    with socket.socket() as data, socket.socket() as admin:
        data.bind(("127.0.0.1", 0))
        admin.bind(("127.0.0.1", 0))
        return Ports(data.getsockname()[1], admin.getsockname()[1])


class Child:
    """A running child and its group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Use `start`."""
        self._process = process

    @classmethod
    async def start(cls, argv: list[str], env: dict[str, str], log: Path) -> "Child":
        """Start `argv` (an absolute program first) with its output appended to `log`. Raises OSError."""
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", SHIM, str(os.getpid()), *argv,
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=asyncio.subprocess.STDOUT,
                env=env, start_new_session=True,
            )  # fmt: skip
        return cls(process)

    @property
    def pid(self) -> int:
        """The child's process id, which is also its group's."""
        return self._process.pid

    async def wait(self) -> int:
        """Its exit code as a kubelet reports it (128 + n for a signal n), once the whole group is gone."""
        code = await self._process.wait()
        self.kill()  # what the child leaves behind in its group has nobody to answer to
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        """SIGTERM to the child alone: it tells its own children."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL to the whole group."""
        with suppress(ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
            os.killpg(self._process.pid, signal.SIGKILL)


def tail(log: Path, *, lines: int = 20, limit: int = 8192) -> str:
    """The last lines of a log, at most `limit` bytes of it; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit))
            text = file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
