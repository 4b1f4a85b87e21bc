"""What each replica of a deployment gains by the law's own prediction, in requests per second that meet the SLO."""

from itertools import pairwise

from sluice_operator.autoscaler.budget.values import Want
from sluice_operator.autoscaler.replicas.need import Need, last_minute, served
from sluice_operator.autoscaler.replicas.stabilization import (
    StabilizationState,
    next_count,
    record_need,
    stabilization_window,
)
from sluice_operator.autoscaler.signals.snapshot import Snapshot


def want_of(snapshot: Snapshot, need: Need, state: StabilizationState, name: str) -> Want:
    """What the deployment `name` asks of the budget: the count that the dial would set without one.

    A deployment with requests asks for at least one replica, also where minReplicas is 0: without one, all of them fail.
    """
    count, current = _unlimited(snapshot, need, state), snapshot.observed.replicas or 0
    is_used = bool(snapshot.observed.held) or not snapshot.is_idle
    least = min(count, max(need.allowed.low, 1 if is_used else 0))
    accelerator = snapshot.spec.engine.accelerator
    return Want(
        name=name,
        each=max(1, accelerator.count),
        priority=snapshot.spec.scaling.priority,
        least=least,
        count=count,
        current=min(current, count),
        gains=gains(snapshot, need, count) if _is_observed(snapshot, state) else None,
    )


def gains(snapshot: Snapshot, need: Need, count: int) -> tuple[float, ...] | None:
    """The requests per second that each of `count` replicas adds to those in time; None without a prediction."""
    if need.hold or need.conditions is None:
        return None
    rate = _rate(snapshot, need)
    shares = [attained(snapshot, need, replicas) for replicas in range(count + 1)]
    return tuple(rate * (more - fewer) for fewer, more in pairwise(shares))


def attained(snapshot: Snapshot, need: Need, replicas: int) -> float:
    """The share of the load that `replicas` serve in time, 0..1, by the rule that predicts least.

    The rules are those of the need: the memory, the last minute at its growth, the throughput and the KV caches.
    """
    replay = need.replay
    load = replay.error * replay.growth
    shares = [1.0]
    for slots, factor in ((replay.slots, replay.error), (last_minute(replay, snapshot.now), load)):
        if any(slot.reachable > 0.0 for slot in slots):
            shares.append(served(slots, replicas, factor))
    rate = load * snapshot.window.rate("arrived_total")
    if rate > 0.0 and replay.throughput > 0.0:
        shares.append(replicas * replay.throughput / rate)
    if replay.held > 0.0:
        shares.append(replicas * snapshot.spec.scaling.target_kv_occupancy_percent / 100.0 / replay.held)
    return max(0.0, min(shares))


def _rate(snapshot: Snapshot, need: Need) -> float:
    """The load in requests per second: what comes now at its growth, or what the memory holds if that is more."""
    slots = need.replay.slots
    seconds = sum(slot.ended - slot.begun for slot in slots)
    remembered = sum(slot.reachable for slot in slots) / seconds if seconds > 0.0 else 0.0
    return max(need.replay.growth * snapshot.window.rate("arrived_total"), remembered)


def _unlimited(snapshot: Snapshot, need: Need, state: StabilizationState) -> int:
    """The count that the dial would set without a budget."""
    mode = snapshot.spec.scaling.mode
    if mode == "External":
        return snapshot.spec.replicas
    if mode == "Off" or snapshot.observed.replicas is None:
        return need.current
    return next_count(snapshot, need, record_need(snapshot, need, state))


def _is_observed(snapshot: Snapshot, state: StabilizationState) -> bool:
    """Whether a whole stabilization window has been observed: a new operator moves no replica by its first scrapes."""
    since = state.observed_since
    return since is not None and snapshot.now - since >= stabilization_window(snapshot)
