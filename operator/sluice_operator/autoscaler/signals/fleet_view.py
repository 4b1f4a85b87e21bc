"""The fresh metrics of a fleet and the memory updated with them, before any decision."""

from dataclasses import replace

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.replicas.capacity_inputs import targets
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.freshness import Fresh, fresh
from sluice_operator.autoscaler.signals.load_balance import weigh
from sluice_operator.autoscaler.signals.windows import absorb
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Observed


def update_signals(
    spec: LLMDeploymentSpec, observed: Observed, memory: AutoscalerState, now: float
) -> tuple[Fresh, AutoscalerState]:
    """The fresh metrics of this observation, and the memory with them folded in."""
    seen = fresh(observed, memory.scrape_gap, now)
    memory = cold_start.learn(absorb(_begin(memory, seen, now), seen, now, targets(spec).ttft), observed)
    return seen, weigh(memory, seen, now)


def _begin(memory: AutoscalerState, seen: Fresh, now: float) -> AutoscalerState:
    """Note the time of the first call, and of the last change of the ready count."""
    if memory.started_at is None or now < memory.started_at:
        # A predecessor's learned estimates are kept; its measurements are taken anew.
        carried = AutoscalerState(
            lengths=memory.lengths, before=memory.before, starts=memory.starts, confidence=memory.confidence
        )
        return replace(carried, started_at=now, ready=len(seen.ready), settled_at=now)
    if len(seen.ready) != memory.ready:
        return replace(memory, ready=len(seen.ready), settled_at=now)
    return memory
