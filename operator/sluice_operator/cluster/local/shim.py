"""Wrapper of an engine process: it makes the kernel end the engine when its parent dies, then execs the engine.

It runs as a file with the standard library only: `shim.py PARENT_PID PROGRAM ARGUMENT…`. A `preexec_fn` would do the
same, but is not safe in a parent with threads. The death signal exists on Linux only.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Exec the program; never returns. Raises SystemExit with code 1 if the parent has already exited (Linux)."""
    parent, program, *rest = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != int(parent):
            raise SystemExit(1)
    os.execv(program, [program, *rest])  # noqa: S606  arguments are a list, no shell


if __name__ == "__main__":
    main(sys.argv[1:])
