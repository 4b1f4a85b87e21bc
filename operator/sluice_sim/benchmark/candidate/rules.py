"""The rules of the candidate law. Each takes the past and gives a number of replicas, or a factor on the load."""

from collections.abc import Sequence
from math import ceil, sqrt

from sluice_sim.benchmark.candidate.history import Slot, Slots, between, late_at
from sluice_sim.benchmark.candidate.settings import REPLAY


def enough(slots: Sequence[Slot], load: float, missed_share: float, most: int, chance: float = 0.0) -> int:
    """The fewest replicas, at most `most`, that would have served these slots at `load` times their load.

    The allowed misses are `missed_share` of the requests that the largest fleet of the replay serves in time, and
    `chance` standard deviations of that count. The late requests fall with the replicas: a bisection."""
    floor = sum(slot.floor for slot in slots)
    expected = missed_share * (sum(slot.reachable for slot in slots) - floor)
    allowed = floor + expected + chance * sqrt(max(expected, 1.0))
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if late_at(slots, middle, load) <= allowed:
            high = middle
        else:
            low = middle
    return high


def model_error(slots: Slots) -> float:
    """The factor on the load, 1 or more, at which the replay has as many misses as came, beyond chance.

    It corrects a step-time model that is too fast. Only slots of a settled fleet are compared: after a change, misses of
    the fleet before it still come."""
    settled = [slot for slot in slots if slot.settled]
    came = sum(slot.delta.missed - slot.delta.unreachable for slot in settled)
    came -= REPLAY.significance * sqrt(max(came, 1.0))
    low, high = 1.0, REPLAY.error_most
    if came <= 0.0 or _late_now(settled, low) >= came:
        return low
    if _late_now(settled, high) <= came:
        return high
    for _ in range(6):
        middle = (low + high) / 2.0
        low, high = (low, middle) if _late_now(settled, middle) >= came else (middle, high)
    return high


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
    error = sqrt(max(residual, mean / REPLAY.bin_seconds) / spread)  # at least that of Poisson arrivals
    recent = (arrivals[-1][1] + arrivals[-2][1]) / 2.0
    if slope <= REPLAY.significance * error or recent <= 0.0:
        return 1.0
    expected = mean + slope * (arrivals[-1][0] + ahead - middle)
    return min(max(1.0, expected / recent), REPLAY.growth_most)


def lasting(slots: Slots, now: float, load: float, missed_share: float, most: int) -> int:
    """The fewest replicas that both halves of the last `rise_seconds` need, at `load` times their load."""
    half = REPLAY.rise_seconds / 2.0
    halves = between(slots, now - half, now), between(slots, now - 2.0 * half, now - half)
    if not all(halves):
        return 1
    return min(enough(one, load, missed_share, most, REPLAY.significance) for one in halves)


def in_memory(held: float, target: float) -> int:
    """The fewest replicas whose mean KV occupancy is at most `target`; `held` is the sum of all replicas' occupancy."""
    return ceil(held / target - 1e-9)


def _late_now(slots: Sequence[Slot], load: float) -> float:
    return sum(slot.late(slot.replicas / load) for slot in slots)
