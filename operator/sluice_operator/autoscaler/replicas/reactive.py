"""The reactive guard: a bounded scale-out ratio from measurements that disagree with the model.

It does not depend on the cause. It acts only on measurements of the current fleet, and at most doubles the ready
replicas, because a missed target shows that more are needed but not how many.
"""

import math
from dataclasses import dataclass

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.histograms import quantile
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.signals.windows import WindowSums
from sluice_perfmodel.capacity import Capacity


@dataclass(frozen=True, slots=True)
class ReactiveDemand:
    """A measured need for more replicas."""

    replicas: int
    ratio: float
    binding: str
    observation: str  # the first half of the sentence
    of_ended_requests: bool = False  # measured on ended requests, which arrived up to a TTFT target earlier


def reactive_demand(
    snapshot: Snapshot, capacity: Capacity | None, planned_attainment: float, fleet_is_settled: bool
) -> ReactiveDemand | None:
    """The strongest demand of KV memory, SLO misses and (without a model) the queue; None where there is none.

    SLO misses rank below the others unless `fleet_is_settled`: the fleet is then as old as the period that the misses
    cover.
    """
    found = [
        one
        for one in (
            _kv_occupancy(snapshot),
            _slo_misses(snapshot, capacity, planned_attainment),
            _queue(snapshot) if capacity is None else None,
        )
        if one is not None
    ]
    return max(found, key=lambda one: (fleet_is_settled or not one.of_ended_requests, one.ratio), default=None)


def _kv_occupancy(snapshot: Snapshot) -> ReactiveDemand | None:
    target = snapshot.spec.scaling.target_kv_occupancy_percent / 100.0
    share = snapshot.kv_occupancy
    if share is None or share <= target:
        return None
    observation = f"{share:.0%} of the KV cache is held (target {target:.0%})"
    return _bounded(snapshot, share / target, "KVOccupancy", observation)


def _slo_misses(snapshot: Snapshot, capacity: Capacity | None, planned_attainment: float) -> ReactiveDemand | None:
    """More misses than chance explains, in the window and still in its last seconds: misses of an old queue pass."""
    window, target, fleet = snapshot.window, snapshot.targets, snapshot.fleet
    if not all(_misses_beyond_chance(sums, planned_attainment) for sums in (window, snapshot.short)):
        return None
    busy = 0.0 if capacity is None else LAW.replicas.guard_busy * capacity.concurrency * len(fleet.measured)
    if not fleet.waiting and fleet.running < busy:
        return None
    missed, met = window.count("slo_missed_total"), window.count("slo_met_total")
    ttft = (quantile(window.ttft, target.attainment) or 0.0) / target.ttft
    itl = (quantile(window.itl, target.attainment) or 0.0) / target.itl
    binding = "TimeToFirstToken" if ttft >= itl else "InterTokenLatency"
    observation = f"{missed:.0f} of {missed + met:.0f} requests missed the SLO in {window.seconds:.0f} s"
    # Late requests are rejected or served last, so the missed share is the excess load. The amount of lateness is
    # chance near capacity.
    return _bounded(snapshot, (missed + met) / max(met, 1.0), binding, observation, of_ended_requests=True)


def _misses_beyond_chance(sums: WindowSums, planned_attainment: float) -> bool:
    missed, met = sums.count("slo_missed_total"), sums.count("slo_met_total")
    expected = (1.0 - planned_attainment) * (missed + met)
    return missed > expected + LAW.replicas.guard_sigmas * math.sqrt(max(expected, 1.0))


def _queue(snapshot: Snapshot) -> ReactiveDemand | None:
    running, waiting, ttft = snapshot.fleet.running, snapshot.fleet.waiting, snapshot.targets.ttft
    served = snapshot.window.rate("finished_total")
    wait = waiting / served if served > 0 else math.inf
    if not waiting or wait <= LAW.replicas.patience * ttft:
        return None
    expected = f"about {wait:.1f} s" if math.isfinite(wait) else "with none finished yet"
    observation = f"{waiting:.0f} requests wait, {expected} (TTFT target {ttft:g} s)"
    return _bounded(snapshot, (running + waiting) / max(running, 1.0), "Queue", observation)


def _bounded(
    snapshot: Snapshot, ratio: float, binding: str, observation: str, of_ended_requests: bool = False
) -> ReactiveDemand:
    """Turn a ratio into a count: at least one more replica, at most twice as many."""
    most, ready = LAW.replicas.guard_most, len(snapshot.fleet.ready)
    ratio = min(max(ratio, 1.0), most)
    count = min(max(round(ready * ratio), ready + 1), int(most * ready))
    return ReactiveDemand(count, ratio, binding, observation, of_ended_requests)
