"""Ctrl-C between two steps, never within one: half a plan in the books is worse than a moment's wait."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_back() -> Iterator[None]:
    """A Ctrl-C within takes effect at the end; a second one at once, for what never ends. Where Python does not handle
    it (elsewhere than on the main thread, or where it is ignored) nothing changes."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came += 1
        if came > 1:
            before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came == 1:
        before(signal.SIGINT, None)
