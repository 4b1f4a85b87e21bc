"""One observation as the snapshot that all rules read, with the signals and the history brought up to date."""

from dataclasses import replace

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.replicas.history import extended
from sluice_operator.autoscaler.signals.freshness import fleet_metrics
from sluice_operator.autoscaler.signals.snapshot import Snapshot, take_snapshot
from sluice_operator.autoscaler.signals.update import update_signals
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.targets import targets
from sluice_operator.autoscaler.values import Observed


def take_in(
    spec: LLMDeploymentSpec, observed: Observed, state: AutoscalerState, now: float
) -> tuple[Snapshot, AutoscalerState]:
    """The snapshot of this observation, and the state with its measurements folded in."""
    fleet = fleet_metrics(observed, state.signals.window.scrape_gap, now)
    state = state.begun(now)
    signals, delta = update_signals(state.signals, fleet, observed, targets(spec).ttft, now)
    history = extended(state.history, delta, len(fleet.ready), float(spec.scaling.burst_memory_seconds), now)
    return take_snapshot(spec, observed, fleet, signals, now), replace(state, signals=signals, history=history)
