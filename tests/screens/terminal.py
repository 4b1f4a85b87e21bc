"""A command in a real pseudo-terminal, and its screen as a terminal emulator shows it."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyte

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 120.0  # bound of a wait; a busy machine is no failure
# Makes the pseudo-terminal the controlling one, so that a key such as Ctrl-C becomes a signal as in a user's terminal.
LAUNCHER: Final = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
CTRL_C: Final = "\x03"
CTRL_D: Final = "\x04"
ENTER: Final = "\r"
UP: Final = "\x1b[A"


class _Screen(pyte.Screen):
    """A screen that answers the reports a program asks the terminal for, such as the position of the cursor."""

    def __init__(self, columns: int, lines: int, master: int) -> None:
        super().__init__(columns, lines)
        self._master = master

    def write_process_input(self, data: str) -> None:
        os.write(self._master, data.encode())


class Terminal:
    """`python -m sluice ARGUMENTS` in a terminal of `columns` × `lines`. The process ends with the context."""

    def __init__(
        self,
        *arguments: str,
        columns: int,
        lines: int = 40,
        env: dict[str, str] | None = None,
        folder: Path | None = None,  # the working directory
    ) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._screen = _Screen(columns, lines, self._master)
        self._stream = pyte.ByteStream(self._screen)
        self.arguments = arguments
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, sys.executable, "-m", "sluice", *arguments],
            stdin=slave, stdout=slave, stderr=slave, env=_environment(env or {}), start_new_session=True,
            cwd=folder or ROOT,
        )  # fmt: skip
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS)
        os.close(self._master)

    def send(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def paste(self, text: str) -> None:
        """Paste text as a terminal in bracketed-paste mode does."""
        self.send(f"\x1b[200~{text}\x1b[201~")

    def wait_for(self, pattern: str, count: int = 1) -> None:
        """Read until the regular expression matches the screen `count` times."""
        end = time.monotonic() + SECONDS
        while len(re.findall(pattern, self.screen())) < count:
            if not self._read(end):
                raise AssertionError(f"{pattern!r} did not appear on\n{self.screen()}")

    def finish(self) -> int:
        """Read until the command ends; its exit code."""
        end = time.monotonic() + SECONDS
        while self._read(end):
            pass
        return self.process.wait(max(0.1, end - time.monotonic()))

    def screen(self) -> str:
        """The lines of the screen without trailing blanks."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip() + "\n"

    def _read(self, end: float) -> bool:
        """Show some output; False at the end of the output, or at the time `end` (monotonic seconds)."""
        if not select.select([self._master], [], [], max(0.0, end - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: no process has the terminal open any more
            return False
        self._stream.feed(data)
        return bool(data)


def _environment(changes: dict[str, str]) -> dict[str, str]:
    """The environment of a user with an ordinary terminal: no colour switches, no width of the caller's."""
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "CI")}
    roots = os.pathsep.join(str(ROOT / root) for root in ("operator", "engine", "kernels"))
    return kept | {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": roots} | changes
