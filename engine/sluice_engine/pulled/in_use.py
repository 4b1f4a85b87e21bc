"""Marks a model folder as in use, so that it is not removed under an engine that has it open.

The mark is a shared lock of the kernel on the folder, which ends with its process, however that ends. Where a file
system has no locks, a folder is never seen as in use: removing it then costs a restarting engine its model, and no
running one its memory.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder is in use inside the context."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def is_held(folder: Path) -> bool:
    """True while any process on this machine holds the folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
