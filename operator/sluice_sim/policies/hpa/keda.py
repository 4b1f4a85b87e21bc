"""KEDA on the queue length: a Prometheus query over the workload that an HPA divides among its pods.

Sources: KEDA documentation, "Scaling deployments" (from 1 replica on, KEDA feeds an HPA with the query's value and
its threshold as AverageValue; polling interval and cooldown only matter at zero replicas); vLLM production-stack's
chart (sum of vllm:num_requests_waiting, threshold 5).
"""

from dataclasses import dataclass
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.values import Decision, Observed
from sluice_sim.policies.hpa.behavior import DEFAULT, HpaMemory, due, settle
from sluice_sim.policies.hpa.ratio import in_total
from sluice_sim.policies.metrics.samples import see
from sluice_sim.policies.policy import Entry, Knob, ask, bounds, current

THRESHOLD: Final = Knob("threshold", 5.0, (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 12.0, 20.0), "waiting requests")


@dataclass(frozen=True, slots=True)
class Keda:
    """A ScaledObject with one Prometheus trigger. `setting` is the threshold in waiting requests per replica."""

    setting: float = THRESHOLD.default
    name: str = "keda"
    knob: Knob = THRESHOLD
    admits: bool = False

    def initial(self) -> HpaMemory:
        """The memory of the HPA that KEDA creates."""
        return HpaMemory()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: HpaMemory, now: float
    ) -> tuple[Decision, HpaMemory]:
        """Scale to ceil(waiting requests of all pods / threshold)."""
        count = current(spec, observed)
        if not due(memory, now):
            return ask(spec, observed, self.name, count, ""), memory
        seen = see(spec, observed, now)
        queue = sum(sample.waiting for _, sample in seen.scraped)
        wanted = in_total(queue, self.setting, seen.existing, count) if seen.scraped else None
        after, memory = settle(memory, DEFAULT, count, wanted, bounds(spec), now)
        why = f"{queue:g} requests wait, threshold {self.setting:g} per replica."
        return ask(spec, observed, self.name, after, why), memory


KEDA: Final = Entry(THRESHOLD, Keda)
