"""Delays Ctrl-C to the end of a step, because an interrupted step would leave the scheduler's bookkeeping
inconsistent.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Delays a Ctrl-C to the end of the context. A second one takes effect immediately, for steps that hang. If Python
    does not handle SIGINT (outside the main thread, or ignored), nothing changes.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    interrupts = 0

    def count(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            before(number, frame)

    signal.signal(signal.SIGINT, count)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts == 1:
        before(signal.SIGINT, None)
