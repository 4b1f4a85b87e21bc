"""Drives the engine in the caller's process; an interrupt neither splits a step nor leaves a request in the engine.

`submitted` is the context in which requests are in the engine, `step` runs one step within it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop
from sluice_engine.offline.interrupts import held_back


@contextmanager
def submitted(
    engine: EngineLoop, requests: Sequence[messages.Submit | messages.Encode], waiting: set[str]
) -> Iterator[None]:
    """Submits the requests and, on exit for any reason, cancels those still in `waiting`.

    `waiting` initially has all ids; the caller removes those that are complete. Raises RuntimeError if the engine
    rejects a request.
    """
    try:
        for message in requests:
            with held_back():
                refusal = engine.submit(message)
            if refusal is not None:
                raise RuntimeError(f"the engine refused a request: {refusal.message}")
        yield
    finally:
        with held_back():
            engine.abandon(waiting)


def step(engine: EngineLoop, missing: str) -> messages.StepReport:
    """Run one step; a Ctrl-C takes effect after it. Raises RuntimeError with `missing` if the engine has no work."""
    with held_back():
        report = engine.step()
    if report is None:
        raise RuntimeError(f"the engine has nothing to do and {missing}")
    return report
