"""The interpreter's search for circles of dead objects, put off while a simulation runs.

A simulation keeps millions of objects alive, none of which refers to itself in a circle: reference counts free all that
ends. The search would look at each of them again and again and find nothing (a twentieth of a long day).
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No search within; whoever had switched it off finds it so."""
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()
