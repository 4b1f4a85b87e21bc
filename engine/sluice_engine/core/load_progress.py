"""Reports the load of weights: how much is on the device, how fast, and how long the rest takes."""

from collections.abc import Callable
from typing import Final

from sluice_engine import messages
from sluice_engine.sources.progress import Progress, Rate, load_text

REPORT_SECONDS: Final = 1.0

Report = Callable[[messages.Loading], None]


class LoadProgress:
    """Converts counts of bytes to messages, at most one per REPORT_SECONDS. It begins when it is made."""

    def __init__(self, report: Report, clock: Callable[[], float]) -> None:
        self._report, self._clock = report, clock
        self._began = self._reported = clock()
        self._rate = Rate()
        self._rate.seconds_left(Progress(0, 1), self._began)

    def on_bytes(self, loaded: int, total: int) -> None:
        """So many bytes of the weights are on the device. A model that is read again begins again."""
        now, progress = self._clock(), Progress(loaded, total)
        left = self._rate.seconds_left(progress, now)
        if now - self._reported >= REPORT_SECONDS:
            self._reported = now
            text = load_text(progress, left)
            self._report(messages.Loading("load", progress.fraction, now - self._began, text))
