"""The progress of a download: bytes now, and an estimate of the time left. Pure; the caller gives the time."""

from dataclasses import dataclass
from typing import Final

RATE_SECONDS: Final = 30.0  # the rate is that of the last so many seconds
_UNITS: Final = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes on this machine's disk or on the device, and of the whole model."""

    received_bytes: int
    total_bytes: int

    @property
    def fraction(self) -> float:
        """The completed part, 0..1."""
        return min(self.received_bytes / self.total_bytes, 1.0) if self.total_bytes else 0.0


class Rate:
    """The rate of a download or a load over the last RATE_SECONDS, from its progress at given times."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def seconds_left(self, progress: Progress, now: float) -> float | None:
        """Adds the progress at `now` (seconds of any clock). Returns the seconds left; None while there is no rate."""
        if self._seen and progress.received_bytes < self._seen[-1][1]:  # a broken file was discarded
            self._seen.clear()
        self._seen.append((now, progress.received_bytes))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_SECONDS:
            self._seen.pop(0)
        (then, before), missing = self._seen[0], progress.total_bytes - progress.received_bytes
        if missing <= 0:
            return 0.0
        gained = progress.received_bytes - before
        return missing * (now - then) / gained if gained > 0 else None


def progress_text(progress: Progress, seconds_left: float | None) -> str:
    """One phrase for a status: "42 % of 16.1 GB, 3 min left"."""
    text = f"{int(100 * progress.fraction)} % of {size_text(progress.total_bytes)}"
    return text if seconds_left is None else f"{text}, {time_text(seconds_left)} left"


def load_text(progress: Progress, seconds_left: float | None) -> str:
    """One phrase for the load of weights: "42 % of 16.1 GB at 2.1 GB/s, 5 s left"."""
    text = f"{int(100 * progress.fraction)} % of {size_text(progress.total_bytes)}"
    if not seconds_left:
        return text
    rate = (progress.total_bytes - progress.received_bytes) / seconds_left
    return f"{text} at {size_text(round(rate))}/s, {time_text(seconds_left)} left"


def size_text(size: int) -> str:
    """A size in bytes as text in decimal units, as hubs and disks are labelled: "16.1 GB"."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def time_text(seconds: float) -> str:
    """A duration as text in its largest unit, rounded up: "3 min"."""
    for unit, name in ((3600.0, "h"), (60.0, "min")):
        if seconds > unit:
            return f"{-int(-seconds // unit)} {name}"
    return f"{-int(-seconds // 1)} s"
