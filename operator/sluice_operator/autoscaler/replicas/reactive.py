"""The reactive guard: a bounded scale-out ratio from measurements that disagree with the model.

It does not depend on the cause. It acts only on measurements of the current fleet, and at most doubles the ready
replicas, because a missed target shows that more are needed but not how many.
"""

import math
from dataclasses import dataclass
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.replicas.capacity_inputs import targets
from sluice_operator.autoscaler.signals.freshness import Fresh
from sluice_operator.autoscaler.signals.histograms import quantile
from sluice_operator.autoscaler.signals.windows import SHORT, WINDOW, Sums, over
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_perfmodel.capacity import Capacity

MOST: Final = 2.0  # at most doubling
# Deviations beyond chance: one miss of 60 or four of 100 does not miss 99 %. With hundreds of checks an hour, two
# deviations would occur by chance.
SIGMAS: Final = 3.0
BUSY: Final = 0.5  # of one replica's concurrency: below, more replicas cannot make a request faster
PATIENCE: Final = 0.5  # of the TTFT target: a longer expected wait leaves too little time for the prefill


@dataclass(frozen=True, slots=True)
class ReactiveDemand:
    """A measured need for more replicas."""

    replicas: int
    ratio: float
    binding: str
    measured: str  # the first half of the sentence
    late: bool = False  # measured on ended requests, which arrived up to a TTFT target earlier


def reactive_demand(
    spec: LLMDeploymentSpec,
    seen: Fresh,
    memory: AutoscalerState,
    now: float,
    capacity: Capacity | None,
    looked_back: bool,
    goal: float,
) -> ReactiveDemand | None:
    """The strongest pressure of KV memory, SLO misses and (without a model) the queue; None where there is none.

    SLO misses rank below the others unless `looked_back`: the fleet is then as old as the period that the misses cover.
    """
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


def kv_share(seen: Fresh, memory: AutoscalerState, now: float) -> float | None:
    """Share of the fleet's KV blocks that running requests hold, 0..1; None without fresh samples.

    It is the mean of the last seconds by the engines' own integral, which includes changes between scrapes. The gauges
    are used where the integral has no data yet.
    """
    if not seen.known:
        return None
    short = over(memory, now, SHORT)
    if short.block_seconds > 0:
        return min(1.0, short.count("kv_block_seconds_total") / short.block_seconds)
    return min(1.0, math.fsum(sample.kv_occupancy for _, sample in seen.known) / len(seen.known))


def _kv(spec: LLMDeploymentSpec, seen: Fresh, memory: AutoscalerState, now: float) -> ReactiveDemand | None:
    target = spec.scaling.target_kv_occupancy_percent / 100.0
    share = kv_share(seen, memory, now)
    if share is None or share <= target:
        return None
    return _pressure(seen, share / target, "KVOccupancy", f"{share:.0%} of the KV cache is held (target {target:.0%})")


def _missed(
    spec: LLMDeploymentSpec, seen: Fresh, window: Sums, recent: Sums, capacity: Capacity | None, goal: float
) -> ReactiveDemand | None:
    """More misses than chance explains, in the window and still in its last seconds: misses of an old queue pass."""
    target = targets(spec)
    missed, met = window.count("slo_missed_total"), window.count("slo_met_total")
    if not _beyond_chance(missed, met, goal) or not _beyond_chance(
        recent.count("slo_missed_total"), recent.count("slo_met_total"), goal
    ):
        return None
    running = math.fsum(sample.running for _, sample in seen.known)
    waiting = math.fsum(sample.waiting for _, sample in seen.known)
    if capacity is not None and not waiting and running < BUSY * capacity.concurrency * len(seen.known):
        return None
    ttft = (quantile(window.ttft, target.attainment) or 0.0) / target.ttft
    itl = (quantile(window.itl, target.attainment) or 0.0) / target.itl
    binding = "TimeToFirstToken" if ttft >= itl else "InterTokenLatency"
    words = f"{missed:.0f} of {missed + met:.0f} requests missed the SLO in {window.seconds:.0f} s"
    # Late requests are rejected or served last, so the missed share is the excess load. The amount of lateness is
    # chance near capacity.
    return _pressure(seen, (missed + met) / max(met, 1.0), binding, words, late=True)


def _beyond_chance(missed: float, met: float, goal: float) -> bool:
    expected = (1.0 - goal) * (missed + met)
    return missed > expected + SIGMAS * math.sqrt(max(expected, 1.0))


def _queue(spec: LLMDeploymentSpec, seen: Fresh, window: Sums) -> ReactiveDemand | None:
    running = math.fsum(sample.running for _, sample in seen.known)
    waiting = math.fsum(sample.waiting for _, sample in seen.known)
    served = window.rate("finished_total")
    wait = waiting / served if served > 0 else math.inf
    if not waiting or wait <= PATIENCE * targets(spec).ttft:
        return None
    expected = f"about {wait:.1f} s" if math.isfinite(wait) else "with none finished yet"
    words = f"{waiting:.0f} requests wait, {expected} (TTFT target {targets(spec).ttft:g} s)"
    return _pressure(seen, (running + waiting) / max(running, 1.0), "Queue", words)


def _pressure(seen: Fresh, ratio: float, binding: str, words: str, late: bool = False) -> ReactiveDemand:
    """Turn a ratio into a count: at least one more replica, at most twice as many."""
    ratio = min(max(ratio, 1.0), MOST)
    ready = len(seen.ready)
    return ReactiveDemand(min(max(round(ready * ratio), ready + 1), int(MOST * ready)), ratio, binding, words, late)
