"""Constant fleets on a load: which counts are run, and the cheapest count that reaches an attainment."""

from collections.abc import Generator, Iterable, Mapping, Sequence
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


def constant_fleets(load: Load) -> ConstantPlan:
    """Run the counts of the grid around the load's size, then those that bracket the target.

    They do not depend on any law, so that a change of the law leaves the schedules that follow from them valid."""
    tried: Constants = {}
    asked: set[int] = {count for count in GRID if load.size / 2 <= count <= min(load.most, 1.5 * load.size)}
    while asked:
        yield from _run(load, asked, tried)
        asked = _beyond(tried, load.most) | _below(tried) or _between(tried, TARGET)
    return tried


def bracketing(load: Load, known: Constants, own: Figures) -> ConstantPlan:
    """Run the counts that bracket Sluice's attainment, and the one that is cheaper by a tenth. Returns all counts."""
    tried = dict(known)
    while asked := _between(tried, own.attainment) | _tenth_cheaper(tried, own):
        yield from _run(load, asked, tried)
    return tried


def _run(load: Load, asked: Iterable[int], tried: Constants) -> Generator[Sequence[LawRun], Sequence[dict[str, Any]]]:
    """Run the counts and add their figures to those tried."""
    counts = sorted(asked)
    found = yield [LawRun(load.name, CONSTANT, float(count)) for count in counts]
    tried |= dict(zip(counts, map(from_dict, found), strict=True))


def cheapest_reaching(tried: Mapping[int, Figures], attainment: float) -> int | None:
    """The smallest count that reaches the attainment; None if none does."""
    return min((count for count, found in tried.items() if found.attainment >= attainment), default=None)


def best_attainment(tried: Mapping[int, Figures]) -> float:
    """The highest attainment of any constant count."""
    return max(found.attainment for found in tried.values())


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


def _between(tried: Constants, attainment: float) -> set[int]:
    """A count between the largest that misses the attainment and the smallest that reaches it, if any is left.

    An attainment that no count reaches is replaced by the highest."""
    high = cheapest_reaching(tried, min(attainment, best_attainment(tried))) or max(tried)
    low = max((count for count in tried if count < high), default=0)
    return {(low + high) // 2} if high - low > 1 else set()


def _tenth_cheaper(tried: Constants, own: Figures) -> set[int]:
    """The largest count that is cheaper than Sluice by a tenth, if it lies in a gap of the counts tried."""
    per_replica = min(found.gpu_hours / count for count, found in tried.items())
    count = int(CHEAPER * own.gpu_hours / per_replica)
    return {count} if any(low < count < high for low, high in pairwise(sorted(tried))) else set()
