"""A run as values over time, in equal pieces: what the picture draws. A day has more moments than a picture has points."""

from collections.abc import Sequence
from dataclasses import dataclass

from sluice_sim.run import Run

PIECES = 240
LEAST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Series:
    """One value per piece of `seconds`, by arrival; None where nobody came."""

    seconds: float
    at: tuple[float, ...]  # the middle of each piece
    offered: tuple[float, ...]  # requests per second
    refused: tuple[float, ...]
    attainment: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """A value that was seen at moments, per piece: its least, mean and most. Pieces without a moment are left out."""

    at: tuple[float, ...]
    low: tuple[float, ...]
    mean: tuple[float, ...]
    high: tuple[float, ...]


def piece_seconds(run: Run) -> float:
    """How long one piece is."""
    return max(LEAST_SECONDS, run.seconds / PIECES)


def over_time(run: Run) -> Series:
    """The requests of a run, by arrival."""
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
    """(time, value) pairs as pieces of `seconds`."""
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
