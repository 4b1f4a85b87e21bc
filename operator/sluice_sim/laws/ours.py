"""Our own law, and each of its two dials alone: what both together are worth is measured against these."""

from dataclasses import dataclass, replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide import decide
from sluice_operator.decide.values import Decision, Memory, Observed
from sluice_sim.laws.law import Entry, Knob

# How many of the misses that spec.slo allows the law plans with: 0.5 under 99 % means that it plans for 99.5 %.
MISSES: Final = Knob("plannedMisses", 1.0, (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 4.0), "of those allowed")
FIXED: Final = Knob("replicas", 1.0, (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "of maxReplicas", most=1.0)


@dataclass(frozen=True, slots=True)
class Sluice:
    """decide() as the operator calls it."""

    setting: float = MISSES.default
    name: str = "sluice"
    knob: Knob = MISSES
    admits: bool = True

    def initial(self) -> Memory:
        """An operator that has just started."""
        return Memory()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: Memory, now: float
    ) -> tuple[Decision, Memory]:
        """Both dials; only replicas where nothing admits."""
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
    """Our admission over a fixed number of replicas."""

    setting: float = FIXED.default
    name: str = "admission-only"
    knob: Knob = FIXED
    admits: bool = True

    def initial(self) -> Memory:
        """An operator that has just started."""
        return Memory()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: Memory, now: float
    ) -> tuple[Decision, Memory]:
        """decide() with minReplicas = maxReplicas: only admission is left to it."""
        count = max(1, round(self.setting * spec.scaling.max_replicas))
        scaling = spec.scaling.model_copy(update={"min_replicas": count, "max_replicas": count})
        return decide(spec.model_copy(update={"scaling": scaling}), observed, memory, now)


OURS: Final = Sluice()
SLUICE: Final = Entry(MISSES, Sluice)
REPLICAS_ONLY: Final = Entry(MISSES, lambda setting: Sluice(setting, name="replicas-only", admits=False))
ADMISSION_ONLY: Final = Entry(FIXED, AdmissionOnly)
