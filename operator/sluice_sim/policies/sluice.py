"""Sluice's own law, and its ablations: replicas only and admission only, the baselines for both together."""

from dataclasses import dataclass, replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision, Observed
from sluice_sim.policies.policy import Entry, Knob

# The share of the SLO misses allowed by spec.slo that the law plans with: 0.5 at a target of 99 % plans for 99.5 %.
MISSES: Final = Knob("plannedMisses", 1.0, (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 4.0), "of those allowed")
FIXED: Final = Knob("replicas", 1.0, (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "of maxReplicas", most=1.0)


@dataclass(frozen=True, slots=True)
class Sluice:
    """decide() as the operator calls it. `setting`: planned misses over the misses that spec.slo allows."""

    setting: float = MISSES.default
    name: str = "sluice"
    knob: Knob = MISSES
    admits: bool = True

    def initial(self) -> AutoscalerState:
        """An operator that has just started."""
        return AutoscalerState()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: AutoscalerState, now: float
    ) -> tuple[Decision, AutoscalerState]:
        """Decide on replicas and admission bounds; on replicas only if `admits` is False."""
        decision, memory = decide(self._planned(spec), observed, memory, now)
        return decision if self.admits else replace(decision, bounds=()), memory

    def _planned(self, spec: LLMDeploymentSpec) -> LLMDeploymentSpec:
        if self.setting == MISSES.default:
            return spec
        misses = self.setting * (100.0 - float(spec.slo.attainment_percent))
        planned = min(max(100.0 - misses, 1.0), 99.999)
        slo = spec.slo.model_copy(update={"attainment_percent": f"{planned:.3f}"})
        return spec.model_copy(update={"slo": slo})


@dataclass(frozen=True, slots=True)
class AdmissionOnly:
    """Sluice's admission with a fixed number of replicas. `setting` is the share of maxReplicas."""

    setting: float = FIXED.default
    name: str = "admission-only"
    knob: Knob = FIXED
    admits: bool = True

    def initial(self) -> AutoscalerState:
        """An operator that has just started."""
        return AutoscalerState()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: AutoscalerState, now: float
    ) -> tuple[Decision, AutoscalerState]:
        """Call decide() with minReplicas = maxReplicas, so that it moves only admission."""
        count = max(1, round(self.setting * spec.scaling.max_replicas))
        scaling = spec.scaling.model_copy(update={"min_replicas": count, "max_replicas": count})
        return decide(spec.model_copy(update={"scaling": scaling}), observed, memory, now)


OURS: Final = Sluice()
SLUICE: Final = Entry(MISSES, Sluice)
REPLICAS_ONLY: Final = Entry(MISSES, lambda setting: Sluice(setting, name="replicas-only", admits=False))
ADMISSION_ONLY: Final = Entry(FIXED, AdmissionOnly)
