"""The settings of a law's knob to try: few, because a knob's curve usually rises or falls.

The search tries thirds of the grid first. It then bisects the gap between the cheapest setting that reaches the target
and the next one that does not. If the best setting is at the edge of the grid, it continues beyond the grid within the
knob's range. If attainment is monotonic along the knob, six runs at most find the result of the whole grid of nine;
otherwise the search takes more runs, up to all that are allowed. A law that misses the target by far in every run is
left at the best of its thirds and edges.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sluice_sim.policies.policy import Knob
from sluice_sim.results.score import Point

TARGET: Final = 0.99
FIRST_ROUND: Final = 3  # settings tried at once in the first round
EQUAL_COST_RATIO: Final = 1.001  # ratio of costs up to which two settings count as equal: the knob has no effect there
UNPROMISING: Final = 0.9  # attainment below which no setting between two tried ones is expected to reach the target


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting of a knob and its result."""

    setting: float
    result: dict[str, Any]

    @property
    def attainment(self) -> float:
        """Good requests over offered requests."""
        return float(self.result["attainment"])

    @property
    def reached(self) -> bool:
        """True if the attainment is at least TARGET."""
        return self.attainment >= TARGET

    @property
    def gpu_hours(self) -> float:
        """GPU-hours from bind to release."""
        return float(self.result["gpu_hours"])

    @property
    def point(self) -> Point:
        """The setting as a point for interpolation."""
        return Point(self.setting, self.attainment, self.gpu_hours)


def evenly_spaced(grid: Sequence[float], most: int) -> list[float]:
    """`most` settings of the grid, each in the middle of an equal part."""
    return [grid[int((part + 0.5) * len(grid) / most)] for part in range(most)]


def ranked(knob: Knob, tried: Mapping[float, Trial]) -> list[Trial]:
    """The settings from best to worst: the cheapest that reaches the target first, then by attainment.

    Ties are broken by the distance to the knob's default.
    """

    def rank(one: Trial) -> tuple[bool, float, float]:
        distance = abs(math.log(one.setting / knob.default))
        return not one.reached, one.gpu_hours if one.reached else -one.attainment, distance

    return sorted(tried.values(), key=rank)


def next_settings(knob: Knob, tried: Mapping[float, Trial]) -> list[float]:
    """The settings to try next; empty if the best is found."""
    top, known = ranked(knob, tried)[0], sorted(tried)
    at = known.index(top.setting)
    sides = [tried[known[k]] if 0 <= k < len(known) else None for k in (at - 1, at + 1)]
    if top.reached:
        missed = [one is not None and not one.reached for one in sides]
        hollow = all(
            one is not None and one.reached and one.gpu_hours > EQUAL_COST_RATIO * top.gpu_hours for one in sides
        )
        # Cheaper settings lie before the first that misses, or away from dearer ones where nothing is tried yet.
        open_ = [missed[k] or hollow or (sides[k] is None and not missed[1 - k]) for k in (0, 1)]
    else:
        edges = [one for one in (knob.grid[0], knob.grid[-1]) if one not in tried]
        if edges:
            return edges
        open_ = [one is None or top.attainment >= UNPROMISING for one in sides]
    found = [
        _beyond(knob, known, top.setting, up) if sides[up] is None else _between(knob.grid, known, at, up)
        for up in (0, 1)
        if open_[up]
    ]
    return [one for one in found if one is not None]


def adjacent(known: Sequence[float], setting: float) -> list[float]:
    """The adjacent settings on both sides."""
    at = known.index(setting)
    return [known[k] for k in (at - 1, at + 1) if 0 <= k < len(known)]


def _between(grid: Sequence[float], known: Sequence[float], at: int, up: int) -> float | None:
    """The middle grid setting between a known setting and the adjacent one; None if there is none."""
    low, high = known[at - 1 + up], known[at + up]
    inside = [one for one in grid if low < one < high]
    return inside[len(inside) // 2] if inside else None


def _beyond(knob: Knob, known: Sequence[float], setting: float, up: int) -> float | None:
    """The next setting outside the known range: of the grid, or extrapolated in their ratio within the knob's range."""
    outside = [one for one in knob.grid if (one > setting if up else one < setting)]
    if outside:
        return min(outside) if up else max(outside)
    if len(known) < 2:
        return None
    found = min(setting * setting / known[-2 if up else 1], knob.most)
    return found if found != setting else None
