"""The rules of the replicas dial. Each takes the past and gives a number of replicas, or a factor on the load."""

from collections.abc import Sequence
from math import ceil, sqrt
from typing import Final

from sluice_operator.autoscaler.replicas.history import Comparison, Slot, between, late_at
from sluice_operator.autoscaler.settings import LAW
from sluice_perfmodel.shadow_queues import LOADS

_MEASURED: Final = LOADS.index(1.0)


def enough(slots: Sequence[Slot], load: float, missed_share: float, most: int, chance: float = 0.0) -> int:
    """The fewest replicas, at most `most`, that would have served these slots at `load` times their load.

    The allowed misses are `missed_share` of the requests that the largest fleet of the replay serves in time, and
    `chance` standard deviations of that count. The late requests fall with the replicas: a bisection."""
    floor = sum([slot.floor for slot in slots])
    expected = missed_share * (sum([slot.reachable for slot in slots]) - floor)
    allowed = floor + expected + chance * sqrt(max(expected, 1.0))
    low, high = 0, max(1, most)
    while high - low > 1:
        middle = (low + high) // 2
        if late_at(slots, middle, load) <= allowed:
            high = middle
        else:
            low = middle
    return high


def lasting(slots: Sequence[Slot], now: float, load: float, missed_share: float, most: int) -> int:
    """The fewest replicas that both halves of the last `rise_seconds` need, at `load` times their load."""
    half = LAW.rise_seconds / 2.0
    halves = between(slots, now - half, now), between(slots, now - 2.0 * half, now - half)
    if not all(halves):
        return 1
    return min(enough(one, load, missed_share, most, LAW.significance) for one in halves)


def in_memory(held: float, target: float) -> int:
    """The fewest replicas whose mean KV occupancy is at most `target`; `held` is the sum of all replicas' occupancy."""
    return ceil(held / target - 1e-9)


def by_throughput(arrivals: Sequence[tuple[float, float]], load: float, each: float, most: int) -> int:
    """The fewest replicas, at most `most`, whose throughput holds what comes, at `load` times the load.

    `arrivals` are (time, requests per second) of consecutive bins: both of the last two must need the replicas. `each` is
    the throughput of one replica, requests per second. Long answers fill a replica over minutes: until then no request is
    late, and the replay does not see that what comes is too much."""
    if len(arrivals) < 2 or each <= 0.0:
        return 1
    rate = load * min(arrivals[-1][1], arrivals[-2][1])
    return max(1, min(most, ceil(rate / each - 1e-9)))


def growth(arrivals: Sequence[tuple[float, float]], ahead: float) -> float:
    """The factor, 1 to `growth_most`, by which the load grows in `ahead` seconds.

    `arrivals` are (time, requests per second) of consecutive bins, oldest first. It is the least-squares line through
    them, where its slope exceeds chance; the residuals give the error of the slope, so a bursty load must grow more."""
    count = len(arrivals)
    if count < 4:
        return 1.0
    middle = sum(at for at, _ in arrivals) / count
    mean = sum(rate for _, rate in arrivals) / count
    spread = sum((at - middle) ** 2 for at, _ in arrivals)
    slope = sum((at - middle) * (rate - mean) for at, rate in arrivals) / spread
    residual = sum((rate - mean - slope * (at - middle)) ** 2 for at, rate in arrivals) / (count - 2)
    error = sqrt(max(residual, mean / LAW.bin_seconds) / spread)  # at least that of Poisson arrivals
    recent = (arrivals[-1][1] + arrivals[-2][1]) / 2.0
    if slope <= LAW.significance * error or recent <= 0.0:
        return 1.0
    expected = mean + slope * (arrivals[-1][0] + ahead - middle)
    return min(max(1.0, expected / recent), LAW.growth_most)


def model_error(comparisons: Sequence[Comparison], missed_share: float) -> float:
    """The factor on the load, 1 to `error_most`, at which the replay has as many misses as came, beyond chance.

    It corrects a step-time model that is too fast, and whatever else the replay does not know. Only minutes count in
    which the replay says that the replicas were enough: in a shortage more requests miss than it replays, because a
    backlog stays."""
    comparisons = [one for one in comparisons if one.lateness[_MEASURED] <= missed_share * one.requests]
    came = sum([one.missed - one.unreachable for one in comparisons])
    came -= LAW.significance * sqrt(max(came, 1.0))
    before, misses = 1.0, predicted_late(comparisons)
    if came <= 0.0 or misses >= came:
        return 1.0
    for place in range(_MEASURED + 1, len(LOADS)):
        load, late = LOADS[place], sum([one.lateness[place] for one in comparisons])
        if load > LAW.error_most:
            break
        if late >= came:
            return before + (load - before) * (came - misses) / (late - misses)
        before, misses = load, late
    return LAW.error_most


def predicted_late(comparisons: Sequence[Comparison]) -> float:
    """Requests that the replay makes late with the replicas that were ready."""
    return sum([one.lateness[_MEASURED] for one in comparisons])
