"""How long a replica takes from wanted to ready: measured per phase, kept as the last few starts of a deployment.

It is the horizon of the forecast, the least time that a replica is kept, and what a client that finds nobody home is
told to wait. The status carries the starts, so that a new operator knows them too.
"""

from dataclasses import replace
from typing import Final

from sluice_operator.decide.trust import COMING_AT_MOST, Fresh
from sluice_operator.decide.values import ColdStart, Memory, Observed

KEPT: Final = 16  # starts: a fifth of them is three, enough to say what the slow ones take
USUAL: Final = 60.0  # seconds, until one was measured: a small model from a volume; an 8B from a hub takes 100 to 300
QUANTILE: Final = 0.8  # of the starts that a plan counts on: half of all being late would be half of all plans wrong
PHASES: Final = ("schedule", "pull", "load", "warm", "total")


def learn(memory: Memory, observed: Observed) -> Memory:
    """Keep each pod's start once, the newest `KEPT` of them. One that cannot be meant is not kept. What was learned of a
    pod is known as long as the pod is there: in a fleet of more than `KEPT` its start may long have made way."""
    first = memory.learned is None
    known = {name for name, _ in memory.starts} | set(memory.learned or ())
    new = [
        (pod.name, pod.cold_start)
        for pod in observed.pods
        if pod.cold_start is not None and pod.name not in known and is_sane(pod.cold_start)
    ]
    known |= {name for name, _ in new}
    learned = tuple(sorted(pod.name for pod in observed.pods if pod.name in known))
    # What a predecessor left are the newest starts of its fleet: those that it lists no more are older.
    starts = (*new, *memory.starts) if first else (*memory.starts, *new)
    return replace(memory, starts=starts[-KEPT:], learned=learned)


def is_sane(start: ColdStart) -> bool:
    """Whether its numbers can be meant: NaN compares false with everything."""
    return all(0.0 <= getattr(start, phase) <= 10.0 * COMING_AT_MOST for phase in PHASES)


def seconds(memory: Memory, share: float = QUANTILE) -> float | None:
    """The total that this share of the starts stay within (the lower where it lies between two: the first start of all
    pulled the image); None where none was measured."""
    totals = sorted(start.total for _, start in memory.starts)
    return totals[int(share * (len(totals) - 1))] if totals else None


def usual(memory: Memory) -> ColdStart | None:
    """The middle one of the starts by their total, with its phases; None where none was measured."""
    starts = sorted((start for _, start in memory.starts), key=lambda start: start.total)
    return starts[(len(starts) - 1) // 2] if starts else None


def remaining(memory: Memory, seen: Fresh, now: float) -> float | None:
    """Seconds until the next replica that is on its way should serve; None where none is. One that takes longer than
    all before is given a tenth of its age more each time, up to twice what starts take."""
    if not seen.young:
        return None
    expected = seconds(memory) or USUAL
    ages = [max(now - pod.since if pod.start_age is None else pod.start_age, 0.0) for pod in seen.young]
    return min(min(max(expected - age, 0.1 * age, 1.0), max(2.0 * expected, 1.0)) for age in ages)
