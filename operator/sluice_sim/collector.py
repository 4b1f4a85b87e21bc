"""Suspends Python's cyclic garbage collector during a simulation.

A simulation keeps millions of objects alive and none of them is part of a reference cycle, so reference counting frees
everything. The collector would traverse all of them repeatedly and find nothing (5 % of the run time of a long day).
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the cyclic garbage collector inside the block, and restore its previous setting afterwards."""
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()
