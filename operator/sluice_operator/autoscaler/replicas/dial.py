"""The replicas dial: the count to set in each mode, and why it changes."""

from dataclasses import dataclass, replace

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.explain import replicas as explain
from sluice_operator.autoscaler.replicas.need import Need
from sluice_operator.autoscaler.replicas.replica_range import ReplicaRange
from sluice_operator.autoscaler.replicas.stabilization import (
    StabilizationState,
    next_count,
    record_need,
    stabilization_window,
)
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.values import Observed, Reason


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The counts that were set, advised and reported."""

    last_set: int | None = None  # the count that was set, once it was observed in force
    advised: int | None = None  # mode Advise's newest advice, from which it continues
    reported: tuple[int, int] | None = None  # (before, after) of the newest reason: reported once


@dataclass(frozen=True, slots=True)
class ReplicaDecision:
    """The result of the replicas dial."""

    replicas: int | None  # to set; None: the count is only advised
    desired: int
    reasons: tuple[Reason, ...]
    state: ReplicaState
    stabilization: StabilizationState

    def ordered(self, observed: Observed) -> int:
        """The count in force. Advice creates no pods: missing replicas are counted against the count really set."""
        return (observed.replicas or 0) if self.replicas is None else self.replicas


def current_count(spec: LLMDeploymentSpec, observed: Observed, state: ReplicaState, allowed: ReplicaRange) -> int:
    """The count that the law starts from. Mode Advise starts from its own last advice, which is not carried out."""
    if spec.scaling.mode == "Advise" and state.advised is not None:
        return state.advised
    return max(1, allowed.low) if observed.replicas is None else observed.replicas


def decide_replicas(
    snapshot: Snapshot, need: Need, state: ReplicaState, stabilization: StabilizationState
) -> ReplicaDecision:
    """The count for the mode of the spec. A change is reported once, although each call decides it until in force."""
    if snapshot.spec.scaling.mode == "Off":
        decision = _keep(snapshot, state, stabilization)
    elif snapshot.spec.scaling.mode == "External":
        decision = _follow_spec(snapshot, need, state, stabilization)
    elif snapshot.observed.replicas is None:
        decision = _create(need, state, stabilization)
    else:
        decision = _scale(snapshot, need, state, stabilization)
    if not decision.reasons:
        return replace(decision, state=replace(decision.state, reported=None))
    newest = (decision.reasons[-1].before, decision.reasons[-1].after)
    reasons = () if decision.state.reported == newest else decision.reasons
    return replace(decision, reasons=reasons, state=replace(decision.state, reported=newest))


def _follow_spec(
    snapshot: Snapshot, need: Need, state: ReplicaState, stabilization: StabilizationState
) -> ReplicaDecision:
    """Mode External: spec.replicas, inside an accelerator budget."""
    observed, count, budget = snapshot.observed.replicas, snapshot.spec.replicas, need.allowed.budget
    if budget is not None and budget.count < count:
        count = budget.count
    else:
        budget = None
    reasons: tuple[Reason, ...] = ()
    if observed != count:
        before = 0 if observed is None else need.current
        reasons = (explain.follows_spec(before, count) if budget is None else explain.budgeted(budget, before, count),)
    return ReplicaDecision(count, count, reasons, replace(state, last_set=None, advised=None), stabilization)


def _keep(snapshot: Snapshot, state: ReplicaState, stabilization: StabilizationState) -> ReplicaDecision:
    """Mode Off: the count that is in force; 1, Kubernetes' default, for a new Deployment."""
    count = 1 if snapshot.observed.replicas is None else snapshot.observed.replicas
    return ReplicaDecision(None, count, (), replace(state, last_set=None, advised=None), stabilization)


def _create(need: Need, state: ReplicaState, stabilization: StabilizationState) -> ReplicaDecision:
    """Modes Auto and Advise while no Deployment exists."""
    budget = need.allowed.budget
    count = need.current if budget is None else budget.count
    reason = explain.created(need.allowed, count) if budget is None else explain.budgeted(budget, 0, count)
    return ReplicaDecision(count, count, (reason,), state, stabilization)


def _scale(snapshot: Snapshot, need: Need, state: ReplicaState, stabilization: StabilizationState) -> ReplicaDecision:
    """Modes Auto and Advise: the need, stabilized."""
    mode, current, now = snapshot.spec.scaling.mode, need.current, snapshot.now
    stabilization = record_need(snapshot, need, stabilization)
    after = next_count(snapshot, need, stabilization)
    if after < current:
        stabilization = replace(stabilization, scaled_in_at=now)
    reasons: tuple[Reason, ...] = ()
    observed = snapshot.observed.replicas
    if mode == "Auto" and state.last_set is not None and observed is not None and observed != state.last_set:
        reasons = (explain.external_write(state.last_set, observed),)
    if after != current:
        reasons = (*reasons, _why(snapshot, need, after))
    if mode == "Advise":
        advice = tuple(explain.advised(reason) for reason in reasons)
        return ReplicaDecision(None, after, advice, replace(state, last_set=None, advised=after), stabilization)
    # A set count is remembered once it is observed in force: until then an older count is this operator's own lag.
    state = replace(state, last_set=current if after == current else None, advised=None)
    return ReplicaDecision(after, after, reasons, state, stabilization)


def _why(snapshot: Snapshot, need: Need, after: int) -> Reason:
    """The reason of a change from the current count."""
    current, allowed = need.current, need.allowed
    start = cold_start.expected_seconds(snapshot.signals.cold_starts)
    if not allowed.low <= current <= allowed.high:
        return explain.bounded(allowed, current, after)
    if current == 0:
        return explain.scaled_from_zero(after, snapshot.observed.held or 0, start)
    if after == 0:
        return explain.scaled_to_zero(snapshot.spec, start)
    return explain.scaled(snapshot, need, after, stabilization_window(snapshot))
