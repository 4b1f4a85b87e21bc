"""Explanations of the replicas dial."""

from dataclasses import replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.budget.values import BudgetLimit
from sluice_operator.autoscaler.explain import wording
from sluice_operator.autoscaler.replicas.history import Slot
from sluice_operator.autoscaler.replicas.need import Need, last_minute, served
from sluice_operator.autoscaler.replicas.replica_range import ReplicaRange
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.values import Reason

OTHER_WRITER: Final = "OtherWriter"  # binding where an external writer set the count


def scaled(snapshot: Snapshot, need: Need, after: int, window: float) -> Reason:
    """The law changed the replica count; a scale-in follows `window` seconds in which fewer were enough."""
    binding, before = need.binding, need.current
    past = wording.minutes(snapshot.spec.scaling.burst_memory_seconds)
    why = (
        f"needed for the load of the last {past}"
        if binding == "RecentLoad"
        else wording.BINDING_WORDS.get(binding, binding)
    )
    if after < before and binding != "Idle":
        why = "fewer are enough"
    body = _up(snapshot, need, after) if after > before else _down(snapshot, need, after, window)
    sentence = f"{before} → {wording.replicas(after)}: {why}. {body}"
    return Reason("replicas", before, after, binding, sentence, wording.numbers(snapshot, need))


def budgeted(budget: BudgetLimit, before: int, after: int) -> Reason:
    """The accelerator budget sets the count."""
    sentence = f"{before} → {wording.replicas(after)}: {budget.sentence}"
    return Reason("replicas", before, after, budget.reason, sentence, budget.numbers)


def bounded(allowed: ReplicaRange, before: int, after: int) -> Reason:
    """The count was outside the range."""
    if allowed.budget is not None and after == allowed.budget.count:
        return budgeted(allowed.budget, before, after)
    change = f"{before} → {wording.replicas(after)}"
    if after > before and allowed.schedule:
        return Reason("replicas", before, after, "Schedule", f"{change}: {allowed.schedule}.")
    name, binding = ("minReplicas", "MinReplicas") if after > before else ("maxReplicas", "MaxReplicas")
    return Reason("replicas", before, after, binding, f"{change}: {name} is {after}.")


def created(allowed: ReplicaRange, after: int) -> Reason:
    """The first count: at least one replica, so that a model that cannot load is detected at once."""
    if allowed.schedule:
        return bounded(allowed, 0, after)
    change = f"0 → {wording.replicas(after)}"
    if not allowed.low:
        sentence = f"{change}: the first one shows that the model loads; it is removed again when idle."
        return Reason("replicas", 0, after, "FirstReplica", sentence)
    return Reason("replicas", 0, after, "MinReplicas", f"{change}: minReplicas is {after}.")


def scaled_from_zero(after: int, held: int, seconds: float) -> Reason:
    """The first held request starts a model that is scaled to zero."""
    held_words = "one request is" if held == 1 else f"{held} requests are"
    sentence = (
        f"0 → {wording.replicas(after)}: {held_words} held by the gateway. The answer begins in about {seconds:.0f} s "
        "(cold start). Without a request there would still be none."
    )
    return Reason("replicas", 0, after, "Wake", sentence, (("held", float(held)), ("coldStartSeconds", seconds)))


def scaled_to_zero(spec: LLMDeploymentSpec, seconds: float) -> Reason:
    """The last replica is removed (scale to zero)."""
    idle = spec.scaling.scale_to_zero_after_seconds
    sentence = (
        f"1 → 0 replicas: idle. No request came for {idle} s; any request would have kept it. The next one is held by the gateway "
        f"and starts a replica, in about {seconds:.0f} s (cold start)."
    )
    return Reason("replicas", 1, 0, "Idle", sentence, (("idleSeconds", float(idle)), ("coldStartSeconds", seconds)))


def follows_spec(before: int, after: int) -> Reason:
    """Mode External: the count follows spec.replicas."""
    sentence = f"{before} → {wording.replicas(after)}: follows spec.replicas (mode External)."
    return Reason("replicas", before, after, "External", sentence)


def advised(reason: Reason) -> Reason:
    """The same change in mode Advise, which carries out nothing."""
    return replace(reason, sentence=f"Advice (not carried out): {reason.sentence}", advised=True)


def external_write(before: int, after: int, writer: str = "") -> Reason:
    """An external writer changed the Deployment's count.

    `writer` is its field manager in the API server's record, empty where the record has none.
    """
    who = f"{writer!r}" if writer else "another writer"
    sentence = (
        f"{before} → {wording.replicas(after)}: {who} changed the Deployment's replicas. Sluice continues from that count; remove "
        "that writer, or set scaling.mode to External and write to /scale to own the count."
    )
    return Reason("replicas", before, after, OTHER_WRITER, sentence)


def unrecorded_write(before: int, after: int) -> Reason:
    """A count that the operator set without a record: it restarted between the two writes, or a response was lost."""
    sentence = (
        f"{before} → {wording.replicas(after)}: carried out, but the operator stopped before it recorded the reason."
    )
    return Reason("replicas", before, after, "CarriedOutBeforeRecorded", sentence)


def _up(snapshot: Snapshot, need: Need, after: int) -> str:
    """What needs the replicas, and why fewer are not enough."""
    replay, spec, budget = need.replay, snapshot.spec, need.allowed.budget
    capped = f" {need.replicas} are needed, maxReplicas is {after}." if need.replicas > after else ""
    if budget is not None and capped and after == budget.count:
        capped = f" {budget.sentence[0].upper()}{budget.sentence[1:]}"
    if need.binding == "KVOccupancy":
        target = spec.scaling.target_kv_occupancy_percent
        return (
            f"Running requests hold {replay.held:.1f} times the KV cache of a replica, and each is planned to be filled to "
            f"{target} % (targetKVOccupancyPercent): up to {(after - 1) * target / 100:.1f} {after - 1} would do.{capped}"
        )
    if need.binding == "Throughput":
        load = replay.error * replay.growth
        return (
            f"{wording.rate(snapshot.window.rate('arrived_total'))} req/s come, {load:.2f} times as many are planned for, and "
            f"one replica serves {wording.rate(replay.throughput)}: up to {wording.rate((after - 1) * replay.throughput / load)} req/s "
            f"{after - 1} would do.{_error(need)}{capped}"
        )
    if need.binding == "MissedSLO":
        outcome = snapshot.window.outcome
        return (
            f"{outcome.missed:.0f} of {outcome.met + outcome.missed:.0f} requests missed it in "
            f"{snapshot.window.seconds:.0f} s, and the engines' step times are not known yet, so the share missed is "
            f"followed, to twice the ready replicas at most.{capped}"
        )
    if need.binding == "LastingLoad":
        load = replay.error * replay.growth
        grown = f" at {replay.growth:.2f} times its load, as the trend gives in {replay.lead:.0f} s (cold start),"
        served = _served(last_minute(replay, snapshot.now), need.replicas, load)
        return f"Of its requests{grown if replay.growth >= 1.005 else ''} {served} (target {_target(spec)}).{_error(need)}{capped}"
    served = _served(replay.slots, need.replicas, replay.error)
    return f"Of its requests {served} (target {_target(spec)}).{_error(need)}{capped}"


def _down(snapshot: Snapshot, need: Need, after: int, window: float) -> str:
    """Why fewer are enough, and what would have kept the others."""
    left = wording.replicas(after)
    if need.binding == "Idle" or need.conditions is None or not need.replay.slots:
        return (
            f"No more than {left} needed for {window:.0f} s. Any load that needs {need.current} would have kept them."
        )
    past = wording.minutes(snapshot.spec.scaling.burst_memory_seconds)
    served = _percent_served(need.replay.slots, after, need.replay.error)
    return (
        f"{left[0].upper()}{left[1:]} would have served {served} of the requests of the last {past} in time "
        f"(target {_target(snapshot.spec)}).{_error(need)} No more were needed for {window:.0f} s."
    )


def _served(slots: tuple[Slot, ...], replicas: int, load: float) -> str:
    """What so many replicas would have served, and one fewer."""
    words = f"{wording.replicas(replicas)} would have served {_percent_served(slots, replicas, load)} in time"
    return f"{words}, {replicas - 1} only {_percent_served(slots, replicas - 1, load)}" if replicas > 1 else words


def _percent_served(slots: tuple[Slot, ...], replicas: int, load: float) -> str:
    """The share that so many replicas would have served in time, in percent."""
    return wording.percent(max(0.0, served(slots, replicas, load)))


def _error(need: Need) -> str:
    """Why the law is careful, where it is."""
    if need.replay.error < 1.005:
        return ""
    return f" More requests missed the SLO than the replay says, so it counts {need.replay.error:.2f} times the load."


def _target(spec: LLMDeploymentSpec) -> str:
    return f"{float(spec.slo.attainment_percent):g} %"
