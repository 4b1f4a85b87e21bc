"""The bond of a process to the one that started it. Standard library only: it is used before torch is imported."""

import contextlib
import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """SIGKILL on the parent's death (Linux). SIGINT is ignored: the parent handles Ctrl-C and drains first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
