"""How many replicas the load needs: the most that the recent past, the lasting load, its rate or the KV caches need."""

import math
from dataclasses import dataclass

from sluice_operator.autoscaler.replicas.history import History, Slot, between, late_at
from sluice_operator.autoscaler.replicas.replica_range import ReplicaRange
from sluice_operator.autoscaler.replicas.rules import by_throughput, enough, growth, in_memory, lasting, model_error
from sluice_operator.autoscaler.replicas.service_conditions import service_conditions, usable_model
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_perfmodel.shadow_queues import LOADS
from sluice_perfmodel.slo_limits import ServiceConditions, slo_concurrency
from sluice_perfmodel.workload import throughput


@dataclass(frozen=True, slots=True)
class Replay:
    """What the rules found. Counts are replicas."""

    slots: tuple[Slot, ...]  # the memory
    error: float  # factor on the load that corrects the replay
    growth: float  # factor by which the load grows until a replica ordered now is ready
    lead: float  # seconds until then
    remembered: int  # enough for the memory
    lasting: int  # needed by both halves of the last minute, with the growth
    by_throughput: int  # needed to serve the reachable requests at their rate, with the growth
    throughput: float  # of one replica, requests per second; 0 while its model is cold
    in_memory: int  # needed by the KV caches
    held: float  # sum of all replicas' KV occupancy


@dataclass(frozen=True, slots=True)
class Need:
    """The replicas that the load needs, before any rule about changes."""

    current: int  # replicas that the law starts from
    allowed: ReplicaRange
    replicas: int
    binding: str  # the rule that asks for most, as the machine-readable reason
    replay: Replay
    conditions: ServiceConditions | None = None  # of one replica; None while its model is cold
    hold: str = ""  # why the count must not fall, whatever is needed


def replicas_needed(snapshot: Snapshot, history: History, allowed: ReplicaRange, current: int) -> Need:
    """The fewest replicas that serve the past, the lasting load and its rate, and whose KV caches have room.

    It is `current` where nothing is measured."""
    conditions = service_conditions(snapshot)
    replay = replayed(snapshot, history, conditions)
    if not snapshot.fleet.measured:
        why = "no engine could be measured" if snapshot.fleet.ready else "no replica is ready yet"
        return Need(current, allowed, current, "MetricsMissing", replay, hold=why)
    found = {
        "RecentLoad": replay.remembered,
        "LastingLoad": replay.lasting,
        "Throughput": replay.by_throughput,
        "KVOccupancy": replay.in_memory,
    }
    if _has_no_replay(snapshot):
        settled = not snapshot.fleet.starting and snapshot.now - history.ready_since > LAW.settled_seconds
        found["MissedSLO"] = _by_misses(snapshot, replay, current, settled)
    replicas = max(1, *found.values())
    binding = next(name for name, count in found.items() if count >= max(found.values()))
    if replicas <= max(1, allowed.low) and snapshot.is_idle:
        binding = "Idle"
    return Need(current, allowed, replicas, binding, replay, conditions, _hold(snapshot))


def replayed(snapshot: Snapshot, history: History, conditions: ServiceConditions | None) -> Replay:
    """The rules on this history."""
    now, spec, missed_share = snapshot.now, snapshot.spec, 1.0 - snapshot.targets.attainment
    lead = cold_start.expected_seconds(snapshot.signals.cold_starts)
    trend = [one for one in history.arrivals if one[0] > now - max(LAW.trend_seconds, lead)]
    error, grown = model_error(history.comparisons, missed_share), growth(trend, lead)
    most = int(history.ready / LOADS[0])  # the replay knows no larger fleet
    doubled = min(most, int(LAW.growth_most * history.ready))
    held, each = _held(snapshot), 0.0 if conditions is None else _throughput(conditions)
    restored = history.restored if now - history.restored_at < spec.scaling.burst_memory_seconds else 1
    return Replay(
        slots=history.slots,
        error=error,
        growth=grown,
        lead=lead,
        remembered=max(enough(history.slots, error, missed_share, most), restored),
        lasting=lasting(history.slots, now, error * grown, missed_share, doubled),
        by_throughput=by_throughput(history.arrivals, _reachable_share(history) * error * grown, each, doubled),
        throughput=each,
        in_memory=in_memory(held, spec.scaling.target_kv_occupancy_percent / 100.0),
        held=held,
    )


def served(slots: tuple[Slot, ...], replicas: int, load: float) -> float:
    """The share of the slots' reachable requests that `replicas` would have served in time at `load` times the load."""
    reachable = sum([slot.reachable for slot in slots])
    return 1.0 - late_at(slots, replicas, load) / reachable if reachable > 0.0 and replicas > 0 else 0.0


def last_minute(replay: Replay, now: float) -> tuple[Slot, ...]:
    """The slots that `lasting` reads."""
    return between(replay.slots, now - LAW.rise_seconds, now)


def _reachable_share(history: History) -> float:
    """The share of the remembered requests that some number of replicas serves in time; the others order none."""
    requests = sum([slot.requests for slot in history.slots])
    return sum([slot.reachable for slot in history.slots]) / requests if requests > 0.0 else 1.0


def _throughput(one: ServiceConditions) -> float:
    """μ(n*) of one replica, requests per second."""
    return throughput(one.replica.model, one.work, slo_concurrency(one))


def _held(snapshot: Snapshot) -> float:
    """The sum of all replicas' KV occupancy, as the mean of the window; the gauges where that has no data yet."""
    window, measured = snapshot.window, snapshot.fleet.measured
    blocks = math.fsum(sample.kv_blocks for _, sample in measured)
    if blocks > 0.0 and window.seconds > 0.0:
        used = window.rate("kv_block_seconds_total") * len(measured) / blocks
    else:
        used = math.fsum(sample.kv_occupancy for _, sample in measured)
    return used * len(snapshot.fleet.ready) / len(measured) if measured else 0.0


def _has_no_replay(snapshot: Snapshot) -> bool:
    """Whether the shadow queues of no engine judge its requests: all models are cold, or there are none.

    A new replica is cold for its first steps; the others tell enough until then."""
    serving = [sample for _, sample in snapshot.fleet.measured if sample.arrived_total > 0.0]
    return bool(serving) and all(sample.shadow is None or usable_model(sample) is None for sample in serving)


def _by_misses(snapshot: Snapshot, replay: Replay, current: int, settled: bool) -> int:
    """The count without a replay: more by the share of requests that missed the SLO, beyond chance.

    At most `growth_most` times the ready replicas, because misses show that more are needed but not how many, and only
    in a fleet that is `settled`: after a change, misses of the fleet before still come. Fewer, one by one, where no
    request waits and the KV caches of the others have room.
    """
    outcome, ready = snapshot.window.outcome, len(snapshot.fleet.ready)
    offered = outcome.met + outcome.missed
    expected = (1.0 - snapshot.targets.attainment) * offered
    if outcome.missed > expected + LAW.significance * math.sqrt(max(expected, 1.0)) and settled:
        return min(max(ready + 1, round(ready * offered / max(outcome.met, 1.0))), int(LAW.growth_most * ready))
    if snapshot.is_idle:
        return 1
    return current if snapshot.fleet.waiting else max(replay.in_memory, current - 1)


def _hold(snapshot: Snapshot) -> str:
    """Why the count must not fall; empty where it may."""
    fleet = snapshot.fleet
    if fleet.unmeasured:
        return f"{fleet.unmeasured} of {len(fleet.ready)} replicas could not be measured and count as busy"
    if snapshot.now < snapshot.signals.window.reset_until:
        return "an engine restarted and its counters began again"
    if snapshot.has_overdue_first_tokens:
        return "first tokens come later than the last bucket, by an unknown amount"
    return ""
