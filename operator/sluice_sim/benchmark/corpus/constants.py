"""Constant fleets on a load: which counts are run, and the cheapest count that reaches an attainment."""

from collections.abc import Generator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from sluice_sim.benchmark.corpus.figures import Figures, from_dict
from sluice_sim.benchmark.corpus.laws import CONSTANT
from sluice_sim.benchmark.corpus.load import Load
from sluice_sim.benchmark.corpus.tasks import LawRun
from sluice_sim.benchmark.search.knob import TARGET

GRID: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 48, 60)
AMPLE: Final = 0.999  # attainment beyond which no larger count is tried
RISE: Final = 0.0005  # least rise of the attainment between two counts of the grid; below it, it has stopped rising
POOR: Final = 0.95  # attainment below which not every smaller count is tried
CHEAPER: Final = 0.9  # a constant fleet "cheaper by a tenth" costs this share
Constants = dict[int, Figures]
ConstantPlan = Generator[Sequence[LawRun], Sequence[dict[str, Any]], Constants]


def constant_fleets(load: Load, own: Figures) -> ConstantPlan:
    """Run the counts of the grid around the load's size, then those that bracket the target and Sluice's attainment."""
    tried: Constants = {}
    asked: list[int] = [count for count in GRID if load.size / 2 <= count <= min(load.most, 1.5 * load.size)]
    while asked:
        found = yield [LawRun(load.name, CONSTANT, float(count)) for count in asked]
        tried |= dict(zip(asked, map(from_dict, found), strict=True))
        asked = _next(tried, load, own)
    return tried


def cheapest_reaching(tried: Mapping[int, Figures], attainment: float) -> int | None:
    """The smallest count that reaches the attainment; None if none does."""
    return min((count for count, found in tried.items() if found.attainment >= attainment), default=None)


def best_attainment(tried: Mapping[int, Figures]) -> float:
    """The highest attainment of any constant count."""
    return max(found.attainment for found in tried.values())


def _next(tried: Constants, load: Load, own: Figures) -> list[int]:
    """The counts to run next; none if the search has ended."""
    asked = {*_beyond(tried, load.most), *_below(tried)}
    if asked:
        return sorted(asked)
    reachable = best_attainment(tried)
    between = {_between(tried, min(target, reachable)) for target in (TARGET, own.attainment)}
    return sorted(count for count in {*between, _tenth_cheaper(tried, own)} if count is not None)


def _beyond(tried: Constants, most: int) -> set[int]:
    """The next count of the grid while more replicas serve more requests."""
    top = max(tried)
    below = max((count for count in tried if count < top), default=None)
    higher = [count for count in GRID if top < count <= most]
    if not higher or tried[top].attainment >= AMPLE:
        return set()
    if below is not None and top > 2 and tried[top].attainment - tried[below].attainment < RISE:
        return set()
    return {higher[0]}


def _below(tried: Constants) -> set[int]:
    """The next smaller count of the grid while the smallest one is good; half of it while it serves any piece.

    The schedules need to know which pieces few replicas serve."""
    low = min(tried)
    if low == 1:
        return set()
    if tried[low].attainment >= POOR:
        return {max(count for count in GRID if count < low)}
    return {low // 2} if min(tried[low].missed) == 0 else set()


def _between(tried: Constants, attainment: float) -> int | None:
    """A count between the largest that misses the attainment and the smallest that reaches it; None if adjacent."""
    high = cheapest_reaching(tried, attainment)
    low = max((count for count in tried if high is None or count < high), default=0)
    return (low + high) // 2 if high is not None and high - low > 1 else None


def _tenth_cheaper(tried: Constants, own: Figures) -> int | None:
    """The largest count that is cheaper than Sluice by a tenth, if it lies in a gap of the counts tried."""
    per_replica = min(found.gpu_hours / count for count, found in tried.items())
    count = int(CHEAPER * own.gpu_hours / per_replica)
    in_gap = any(low < count < high for low, high in pairwise(sorted(tried)))
    return count if in_gap else None
