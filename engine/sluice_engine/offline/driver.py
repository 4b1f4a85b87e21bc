"""Drives the engine in the caller's process; an interrupt neither splits a step nor leaves a request in the engine.

`submitted` is the context in which requests are in the engine, `step` runs one step within it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop
from sluice_engine.offline.interrupts import deferred_interrupts


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
            with deferred_interrupts():
                rejection = engine.submit(message)
            if rejection is not None:
                raise RuntimeError(f"the engine rejected a request: {rejection.message}")
        yield
    finally:
        with deferred_interrupts():
            engine.cancel_all(waiting)


def step(engine: EngineLoop, incomplete: str) -> messages.StepReport:
    """Run one step; a Ctrl-C takes effect after it. Raises RuntimeError with `incomplete` if the engine has no work."""
    with deferred_interrupts():
        report = engine.step()
    if report is None:
        raise RuntimeError(f"the engine has no work and {incomplete}")
    return report
