"""Driving the engine in this process, whatever may come: no step is cut in two, no request is left behind.

`submitted` is the time that requests are in the engine, `step` is one step within it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sluice_engine import ipc
from sluice_engine.interrupts import held_back
from sluice_engine.loop import EngineLoop


@contextmanager
def submitted(engine: EngineLoop, messages: Sequence[ipc.Submit | ipc.Encode], waiting: set[str]) -> Iterator[None]:
    """These requests are in the engine. Whatever ends that, what is `waiting` then is abandoned.

    `waiting` has the ids of all at first; the caller takes out those that it has the answer of. Raises RuntimeError
    where the engine refuses one.
    """
    try:
        for message in messages:
            with held_back():
                refusal = engine.submit(message)
            if refusal is not None:
                raise RuntimeError(f"the engine refused a request: {refusal.message}")
        yield
    finally:
        with held_back():
            engine.abandon(waiting)


def step(engine: EngineLoop, missing: str) -> ipc.StepReport:
    """One step; a Ctrl-C takes effect behind it. Raises RuntimeError with what is `missing` where nothing is left to
    do."""
    with held_back():
        report = engine.step()
    if report is None:
        raise RuntimeError(f"the engine has nothing to do and {missing}")
    return report
