"""A run as values over time in equal intervals, for the picture: a day has more samples than a picture has points."""

from collections.abc import Sequence
from dataclasses import dataclass

from sluice_sim.results.run import Run

PIECES = 240
LEAST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Series:
    """One value per interval of `seconds`, by arrival time. Attainment is None without any arrival."""

    seconds: float
    at: tuple[float, ...]  # midpoint of each interval, s
    offered: tuple[float, ...]  # requests per second
    refused: tuple[float, ...]  # requests per second
    attainment: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """Minimum, mean and maximum of a sampled value per interval. Intervals without a sample are left out."""

    at: tuple[float, ...]
    low: tuple[float, ...]
    mean: tuple[float, ...]
    high: tuple[float, ...]


def piece_seconds(run: Run) -> float:
    """Length of one interval, in seconds."""
    return max(LEAST_SECONDS, run.seconds / PIECES)


def over_time(run: Run) -> Series:
    """The request rates and the attainment of a run, by arrival time."""
    seconds = piece_seconds(run)
    count = max(1, -int(-run.seconds // seconds))
    offered, refused, good = [0] * count, [0] * count, [0] * count
    for record in run.records:
        piece = min(count - 1, int(record.arrived_at / seconds))
        offered[piece] += 1
        refused[piece] += record.refused
        good[piece] += record.good
    return Series(
        seconds=seconds,
        at=tuple((piece + 0.5) * seconds for piece in range(count)),
        offered=_rates(offered, seconds),
        refused=_rates(refused, seconds),
        attainment=tuple(part / whole if whole else None for part, whole in zip(good, offered, strict=True)),
    )


def band(values: Sequence[tuple[float, float]], seconds: float) -> Band:
    """Aggregate (time, value) pairs into intervals of `seconds`."""
    pieces: dict[int, list[float]] = {}
    for at, value in values:
        pieces.setdefault(int(at / seconds), []).append(value)
    found = sorted(pieces.items())
    return Band(
        at=tuple((piece + 0.5) * seconds for piece, _ in found),
        low=tuple(min(seen) for _, seen in found),
        mean=tuple(sum(seen) / len(seen) for _, seen in found),
        high=tuple(max(seen) for _, seen in found),
    )


def _rates(counts: Sequence[int], seconds: float) -> tuple[float, ...]:
    return tuple(count / seconds for count in counts)
