"""Cold start: the time from the order of a replica to ready, per phase, over the last starts of a deployment.

It is the horizon of the forecast, the least time that a replica is kept, and the Retry-After of a client that finds no
replica. The status keeps the starts, so that a new operator has them.
"""

from dataclasses import replace
from typing import Final

from sluice_operator.autoscaler.signals.freshness import COMING_AT_MOST, Fresh
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import ColdStart, Observed

KEPT: Final = 16  # starts: a fifth of them is three, enough to estimate the slow ones
USUAL: Final = 60.0  # seconds, until one is measured: a small model from a volume; an 8B from a hub takes 100 to 300
QUANTILE: Final = 0.8  # of the starts: a plan on the median would be too early half of the time
PHASES: Final = ("schedule", "pull", "load", "warm", "total")


def learn(memory: AutoscalerState, observed: Observed) -> AutoscalerState:
    """Record each pod's start once and keep the newest `KEPT`; an invalid one is left out.

    `learned` lists a pod as long as it exists: in a fleet of more than `KEPT` pods its start may be dropped earlier.
    """
    first = memory.learned is None
    known = {name for name, _ in memory.starts} | set(memory.learned or ())
    new = [
        (pod.name, pod.cold_start)
        for pod in observed.pods
        if pod.cold_start is not None and pod.name not in known and is_sane(pod.cold_start)
    ]
    known |= {name for name, _ in new}
    learned = tuple(sorted(pod.name for pod in observed.pods if pod.name in known))
    # A predecessor's starts are the newest of its fleet: starts that it no longer lists are older.
    starts = (*new, *memory.starts) if first else (*memory.starts, *new)
    return replace(memory, starts=starts[-KEPT:], learned=learned)


def is_sane(start: ColdStart) -> bool:
    """Whether all its numbers are valid: NaN compares false with everything."""
    return all(0.0 <= getattr(start, phase) <= 10.0 * COMING_AT_MOST for phase in PHASES)


def seconds(memory: AutoscalerState, share: float = QUANTILE) -> float | None:
    """The total that a `share` of the starts stays within, in seconds; None where none was measured.

    Between two starts it is the lower one, because the very first start pulled the image.
    """
    totals = sorted(start.total for _, start in memory.starts)
    return totals[int(share * (len(totals) - 1))] if totals else None


def usual(memory: AutoscalerState) -> ColdStart | None:
    """The median start by its total, with its phases; None where none was measured."""
    starts = sorted((start for _, start in memory.starts), key=lambda start: start.total)
    return starts[(len(starts) - 1) // 2] if starts else None


def remaining(memory: AutoscalerState, seen: Fresh, now: float) -> float | None:
    """Seconds until the next starting replica should serve; None where none is starting.

    A start that takes longer than expected gets another tenth of its age, up to twice the expected time.
    """
    if not seen.young:
        return None
    expected = seconds(memory) or USUAL
    ages = [max(now - pod.since if pod.start_age is None else pod.start_age, 0.0) for pod in seen.young]
    return min(min(max(expected - age, 0.1 * age, 1.0), max(2.0 * expected, 1.0)) for age in ages)
