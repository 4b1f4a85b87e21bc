"""Started between `sluice up` and an engine: asks the kernel to end the engine when its parent dies, then becomes it.

Run as a file, with nothing but the standard library: `shim.py PARENT_PID PROGRAM ARGUMENT…`. A `preexec_fn` would do
the same but is not safe once the parent has threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Never returns: execs the program, or exits when the parent is gone already."""
    parent, program, *rest = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != int(parent):
            raise SystemExit(1)
    os.execv(program, [program, *rest])  # noqa: S606  arguments are a list, no shell


if __name__ == "__main__":
    main(sys.argv[1:])
