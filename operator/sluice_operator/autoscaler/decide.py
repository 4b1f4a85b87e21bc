"""The control law: one decision about replicas and admission as a pure function of (spec, observed, state, now).

1. The observation is folded into the signals, and all rules read one snapshot of them.
2. The model and the measurements recommend a number of replicas; their agreement sets the model confidence.
3. The replicas dial stabilizes the recommendation for the mode of the spec.
4. The admission dial sets bounds per engine, tight while replicas are missing.
5. Every change carries its reason in words and numbers.
"""

from dataclasses import replace

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler import status_figures
from sluice_operator.autoscaler.admission.bounds import engine_bounds
from sluice_operator.autoscaler.admission.reporting import (
    limit_in_force,
    record_limits,
    report_limit,
    report_rejections,
)
from sluice_operator.autoscaler.admission.shortage import is_waiting_for_replicas, note_shortage
from sluice_operator.autoscaler.observation import take_in
from sluice_operator.autoscaler.replicas.dial import ReplicaDecision, current_count, decide_replicas
from sluice_operator.autoscaler.replicas.model_confidence import update_confidence
from sluice_operator.autoscaler.replicas.recommendation import Recommendation, recommend
from sluice_operator.autoscaler.replicas.replica_range import replica_range
from sluice_operator.autoscaler.replicas.scale_in_order import scale_in_candidates
from sluice_operator.autoscaler.replicas.stabilization import note_idle
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Bounds, Decision, Observed


def decide(
    spec: LLMDeploymentSpec, observed: Observed, state: AutoscalerState, now: float
) -> tuple[Decision, AutoscalerState]:
    """The decision for `now` and the state for the next call.

    `now` is monotonic seconds. The function raises no error, whatever was observed.
    """
    snapshot, state = take_in(spec, observed, state, now)

    recommendation = _recommend(snapshot, state)
    contradicts, confirms = recommendation.contradicts_model, recommendation.confirms_model
    state = replace(state, confidence=update_confidence(state.confidence, contradicts, confirms, now))

    stabilization = note_idle(snapshot, state.stabilization)
    dial = decide_replicas(snapshot, recommendation, state.replicas, stabilization)
    ordered = dial.ordered(observed)
    state = replace(state, replicas=dial.state, stabilization=dial.stabilization)
    state = replace(state, shortage=note_shortage(snapshot, state.shortage, ordered))

    limit_reasons, admission = report_limit(snapshot, recommendation, state.admission)
    rejection_reasons, admission = report_rejections(snapshot, recommendation, admission, ordered)
    bounds = _bounds(snapshot, recommendation, state, ordered)
    state = replace(state, admission=record_limits(snapshot, admission, bounds))

    decision = _without_actions(snapshot, recommendation, dial, state)
    if not spec.paused:
        decision = replace(
            decision,
            replicas=dial.replicas,
            bounds=bounds,
            next_scale_in_candidate=dial.state.next_candidate,
            reasons=(*dial.reasons, *limit_reasons, *rejection_reasons),
        )
    return decision, state


def _recommend(snapshot: Snapshot, state: AutoscalerState) -> Recommendation:
    """The recommendation from the current count, inside the range of this moment.

    The replicas of a schedule are ordered one cold start early.
    """
    lead = cold_start.planned_seconds(snapshot.signals.cold_starts) or 0.0
    allowed = replica_range(snapshot.spec, snapshot.observed, lead)
    current = current_count(snapshot.spec, snapshot.observed, state.replicas, allowed)
    return recommend(snapshot, allowed, state.confidence.value, current)


def _bounds(
    snapshot: Snapshot, recommendation: Recommendation, state: AutoscalerState, ordered: int
) -> tuple[tuple[str, Bounds], ...]:
    """The bounds per engine, up to n* of the model; none while the resource is paused."""
    if snapshot.spec.paused:
        return ()
    model_limit = None if recommendation.capacity is None else recommendation.capacity.concurrency
    coming = is_waiting_for_replicas(snapshot, state.shortage, ordered)
    return engine_bounds(snapshot, model_limit, coming, state.stabilization.observed_since)


def _without_actions(
    snapshot: Snapshot, recommendation: Recommendation, dial: ReplicaDecision, state: AutoscalerState
) -> Decision:
    """The decision of a paused resource: what is desired, and the figures for the status."""
    observed, window, cold_starts = snapshot.observed, snapshot.window, snapshot.signals.cold_starts
    removed = 0 if dial.replicas is None else (observed.replicas or 0) - dial.replicas
    return Decision(
        replicas=None,
        desired=dial.desired,
        scale_in_candidates=scale_in_candidates(snapshot, dial.state.next_candidate, removed),
        kv_occupancy=snapshot.kv_occupancy,
        ttft=status_figures.latency(snapshot, window.ttft),
        itl=status_figures.latency(snapshot, window.itl),
        attainment=status_figures.attainment(window),
        concurrency=limit_in_force(snapshot),
        cold_start=cold_start.median_start(cold_starts),
        retry_after=cold_start.remaining_seconds(cold_starts, snapshot.fleet, snapshot.now),
        forecast=status_figures.forecast_status(snapshot, recommendation, state.confidence.value),
        metrics=status_figures.metrics_state(snapshot),
    )
