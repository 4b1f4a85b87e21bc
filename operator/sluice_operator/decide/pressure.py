"""The reactive guard: what is measured when reality disagrees with the model, as a bounded ratio.

It does not ask why. It speaks only with evidence of the fleet as it stands, and at most doubles what is ready: a
ratio of a missed target says that more is needed, not how much.
"""

import math
from dataclasses import dataclass
from typing import Final

from sluice_law.capacity import Capacity
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.histograms import quantile
from sluice_operator.decide.physics import targets
from sluice_operator.decide.trust import Fresh
from sluice_operator.decide.values import Memory
from sluice_operator.decide.windows import SHORT, WINDOW, Sums, over

MOST: Final = 2.0  # at most doubling
# More misses than chance explains. One miss of sixty is no miss of 99 %, and neither are four of a hundred: somebody
# looks some hundred times an hour, so two standard deviations would be chance several times an hour.
SIGMAS: Final = 3.0
BUSY: Final = 0.5  # of what one replica holds at once: below, more replicas cannot make a request faster
PATIENCE: Final = 0.5  # of the TTFT target: a longer expected wait leaves too little for the prompt itself


@dataclass(frozen=True, slots=True)
class Pressure:
    """More is needed, by measurement."""

    replicas: int
    ratio: float
    binding: str
    measured: str  # the sentence's first half
    late: bool = False  # found in answers, whose requests came up to a TTFT target earlier


def pressure(
    spec: LLMDeploymentSpec,
    seen: Fresh,
    memory: Memory,
    now: float,
    capacity: Capacity | None,
    looked_back: bool,
    goal: float,
) -> Pressure | None:
    """The strongest of memory, missed promises and (without a model) the queue; None when all is well. Missed promises
    give way to the others unless `looked_back`: whether the fleet has stood as long as they look back."""
    found = [
        one
        for one in (
            _kv(spec, seen, memory, now),
            _missed(spec, seen, over(memory, now, WINDOW), over(memory, now, SHORT), capacity, goal),
            _queue(spec, seen, over(memory, now, WINDOW)) if capacity is None else None,
        )
        if one is not None
    ]
    return max(found, key=lambda one: (looked_back or not one.late, one.ratio), default=None)


def kv_share(seen: Fresh, memory: Memory, now: float) -> float | None:
    """Share of the fleet's blocks held by running requests: the mean of the last seconds by the engines' own
    integral, which sees what gauges miss between scrapes; the gauges where it has none yet."""
    if not seen.known:
        return None
    short = over(memory, now, SHORT)
    if short.block_seconds > 0:
        return min(1.0, short.count("kv_block_seconds_total") / short.block_seconds)
    return min(1.0, math.fsum(sample.kv_occupancy for _, sample in seen.known) / len(seen.known))


def _kv(spec: LLMDeploymentSpec, seen: Fresh, memory: Memory, now: float) -> Pressure | None:
    target = spec.scaling.target_kv_occupancy_percent / 100.0
    share = kv_share(seen, memory, now)
    if share is None or share <= target:
        return None
    return _pressure(seen, share / target, "KVOccupancy", f"{share:.0%} of the KV cache is held (target {target:.0%})")


def _missed(
    spec: LLMDeploymentSpec, seen: Fresh, window: Sums, recent: Sums, capacity: Capacity | None, goal: float
) -> Pressure | None:
    """More misses than chance explains, in the window and still in its last seconds: late ones of an old queue pass."""
    promised = targets(spec)
    missed, met = window.count("slo_missed_total"), window.count("slo_met_total")
    if not _beyond_chance(missed, met, goal) or not _beyond_chance(
        recent.count("slo_missed_total"), recent.count("slo_met_total"), goal
    ):
        return None
    running = math.fsum(sample.running for _, sample in seen.known)
    waiting = math.fsum(sample.waiting for _, sample in seen.known)
    if capacity is not None and not waiting and running < BUSY * capacity.concurrency * len(seen.known):
        return None
    ttft = (quantile(window.ttft, promised.attainment) or 0.0) / promised.ttft
    itl = (quantile(window.itl, promised.attainment) or 0.0) / promised.itl
    binding = "TimeToFirstToken" if ttft >= itl else "InterTokenLatency"
    words = f"{missed:.0f} of {missed + met:.0f} requests missed the SLO in {window.seconds:.0f} s"
    # Who cannot be in time is turned away or served last: the share that was missed is the share of work that is too much.
    # How late they were says nothing of that: near its capacity a queue's length is chance.
    return _pressure(seen, (missed + met) / max(met, 1.0), binding, words, late=True)


def _beyond_chance(missed: float, met: float, goal: float) -> bool:
    expected = (1.0 - goal) * (missed + met)
    return missed > expected + SIGMAS * math.sqrt(max(expected, 1.0))


def _queue(spec: LLMDeploymentSpec, seen: Fresh, window: Sums) -> Pressure | None:
    running = math.fsum(sample.running for _, sample in seen.known)
    waiting = math.fsum(sample.waiting for _, sample in seen.known)
    served = window.rate("finished_total")
    wait = waiting / served if served > 0 else math.inf
    if not waiting or wait <= PATIENCE * targets(spec).ttft:
        return None
    expected = f"about {wait:.1f} s" if math.isfinite(wait) else "with none finished yet"
    words = f"{waiting:.0f} requests wait, {expected} (TTFT target {targets(spec).ttft:g} s)"
    return _pressure(seen, (running + waiting) / max(running, 1.0), "Queue", words)


def _pressure(seen: Fresh, ratio: float, binding: str, words: str, late: bool = False) -> Pressure:
    """A ratio made into a count: one more at least, twice as many at most."""
    ratio = min(max(ratio, 1.0), MOST)
    ready = len(seen.ready)
    return Pressure(min(max(round(ready * ratio), ready + 1), int(MOST * ready)), ratio, binding, words, late)
