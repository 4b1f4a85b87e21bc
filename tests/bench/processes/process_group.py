"""A side of a comparison as a process group: stopped (SIGSTOP) while it is idle, so that no spinning thread slows another."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

LAST_WORDS: Final = 300  # characters of a log in an error message


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to the group that `pid` leads, if there is one."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def last_words(log: Path) -> str:
    """The last line of a log that names an error, else its last line, and where the log is."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line] or lines
    return f"{errors[-1].strip()[:LAST_WORDS] if errors else 'it said nothing'} ({log})"
