"""A run as values over time, in equal pieces: what the picture draws."""

from collections.abc import Sequence
from dataclasses import dataclass

from sluice_sim.run import Run

PIECES = 120
LEAST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Series:
    """One value per piece of `seconds`; None where nobody came."""

    seconds: float
    at: tuple[float, ...]  # the middle of each piece
    offered: tuple[float, ...]  # requests per second
    refused: tuple[float, ...]
    attainment: tuple[float | None, ...]


def over_time(run: Run) -> Series:
    """The requests of a run, by arrival."""
    seconds = max(LEAST_SECONDS, run.seconds / PIECES)
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


def _rates(counts: Sequence[int], seconds: float) -> tuple[float, ...]:
    return tuple(count / seconds for count in counts)
