"""Keeps the processor's cores from halting, for times of less than a millisecond.

A virtual core that has halted runs its first 200 µs at a third to a half of its speed. The engine beside a real HTTP process never
lets a core halt; the null engine does. The idle processes yield at once to any other process.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SPIN: Final = "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"


@contextmanager
def awake_cores() -> Iterator[None]:
    """One process of the scheduling class SCHED_IDLE per core, until the block ends. Linux only."""
    processes = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
