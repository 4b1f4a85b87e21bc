"""The control law: one decision about replicas and admission as a pure function of (spec, observed, state, now).

1. The scrapes are folded into the signals and the history; all rules read one snapshot of them.
2. Replicas needed: the fewest that would have served the last quarter of an hour within the SLO, that the lasting load
   needs by the time a replica ordered now is ready, whose throughput holds what comes and whose KV caches have room.
3. An accelerator budget that deployments share lowers the range: by priority, then by what each replica gains.
4. The replicas dial moves the count: out at once, in one by one after the stabilization window.
5. The admission dial sets bounds per engine, tight while replicas are missing.
6. Every change carries its reason in words and numbers. README.md is the law with its equations and an example.
"""

from dataclasses import replace

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler import status_figures
from sluice_operator.autoscaler.admission.bounds import engine_bounds
from sluice_operator.autoscaler.admission.reporting import (
    limit_in_force,
    record_bounds,
    report_limit,
    report_rejections,
)
from sluice_operator.autoscaler.admission.shortage import is_waiting_for_replicas, note_shortage
from sluice_operator.autoscaler.budget.limit import budget_limit
from sluice_operator.autoscaler.budget.prediction import want_of
from sluice_operator.autoscaler.observation import take_in
from sluice_operator.autoscaler.replicas.dial import ReplicaDecision, current_count, decide_replicas
from sluice_operator.autoscaler.replicas.need import Need, replicas_needed
from sluice_operator.autoscaler.replicas.replica_range import replica_range
from sluice_operator.autoscaler.replicas.scale_in_order import scale_in_candidates
from sluice_operator.autoscaler.replicas.stabilization import note_idle
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Bounds, Decision, Observed
from sluice_perfmodel.slo_limits import slo_concurrency


def decide(
    spec: LLMDeploymentSpec, observed: Observed, state: AutoscalerState, now: float
) -> tuple[Decision, AutoscalerState]:
    """The decision for `now` and the state for the next call.

    `now` is monotonic seconds. The function raises no error, whatever was observed.
    """
    snapshot, state = take_in(spec, observed, state, now)

    # A schedule's replicas are ordered one cold start early.
    lead = cold_start.planned_seconds(snapshot.signals.cold_starts) or 0.0
    allowed = replica_range(spec, observed, lead)
    need = replicas_needed(snapshot, state.history, allowed, current_count(spec, observed, state.replicas, allowed))

    # An accelerator budget shared with other deployments lowers the range.
    stabilization = note_idle(snapshot, state.stabilization)
    want = None if observed.budget is None else want_of(snapshot, need, stabilization, observed.budget.name)
    limit = None if want is None else budget_limit(observed.budget, want)
    need = replace(need, allowed=allowed.limited(limit))

    dial = decide_replicas(snapshot, need, state.replicas, stabilization)
    ordered = dial.ordered(observed)
    shortage = note_shortage(snapshot, state.shortage, ordered)
    state = replace(state, replicas=dial.state, stabilization=dial.stabilization, shortage=shortage)

    limit_reasons, admission = report_limit(snapshot, need, state.admission)
    rejection_reasons, admission = report_rejections(snapshot, need, admission, ordered)
    bounds = _bounds(snapshot, need, state, ordered)
    state = replace(state, admission=record_bounds(admission, bounds))

    decision = replace(_without_actions(snapshot, need, dial, state), want=want, budget=limit)
    if not spec.paused:
        reasons = (*dial.reasons, *limit_reasons, *rejection_reasons)
        decision = replace(decision, replicas=dial.replicas, bounds=bounds, reasons=reasons)
    return decision, state


def _bounds(snapshot: Snapshot, need: Need, state: AutoscalerState, ordered: int) -> tuple[tuple[str, Bounds], ...]:
    """The bounds per engine, up to n* of the model; none while the resource is paused."""
    if snapshot.spec.paused:
        return ()
    model_limit = None if need.conditions is None else slo_concurrency(need.conditions)
    coming = is_waiting_for_replicas(snapshot, state.shortage, ordered)
    return engine_bounds(snapshot, model_limit, coming, state.stabilization.observed_since)


def _without_actions(snapshot: Snapshot, need: Need, dial: ReplicaDecision, state: AutoscalerState) -> Decision:
    """The decision of a paused resource: what is desired, and the figures for the status."""
    observed, window, cold_starts = snapshot.observed, snapshot.window, snapshot.signals.cold_starts
    removed = 0 if dial.replicas is None else (observed.replicas or 0) - dial.replicas
    return Decision(
        replicas=None,
        desired=dial.desired,
        scale_in_candidates=scale_in_candidates(snapshot, removed),
        kv_occupancy=snapshot.kv_occupancy,
        ttft=status_figures.latency(snapshot, window.ttft),
        itl=status_figures.latency(snapshot, window.itl),
        attainment=status_figures.attainment(window),
        concurrency=limit_in_force(snapshot),
        cold_start=cold_start.median_start(cold_starts),
        retry_after=cold_start.remaining_seconds(cold_starts, snapshot.fleet, snapshot.now),
        forecast=status_figures.forecast_status(snapshot, need, state.history),
        metrics=status_figures.metrics_state(snapshot),
    )
