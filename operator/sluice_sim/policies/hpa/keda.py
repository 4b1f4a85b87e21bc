"""KEDA on the queue length: a Prometheus query over the workload that an HPA divides among its pods.

Sources: KEDA documentation, "Scaling deployments" (from 1 replica on, KEDA feeds an HPA with the query's value and
its threshold as AverageValue; polling interval and cooldown only matter at zero replicas); vLLM production-stack's
chart (sum of vllm:num_requests_waiting, threshold 5).
"""

from dataclasses import dataclass
from typing import Final

from sluice_sim.policies.base import HpaLaw
from sluice_sim.policies.hpa.ratio import in_total
from sluice_sim.policies.metrics.samples import Seen
from sluice_sim.policies.policy import Entry, Knob

THRESHOLD: Final = Knob("threshold", 5.0, (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 12.0, 20.0), "waiting requests")


@dataclass(frozen=True, slots=True)
class Keda(HpaLaw):
    """A ScaledObject with one Prometheus trigger. `setting` is the threshold in waiting requests per replica."""

    setting: float = THRESHOLD.default
    name: str = "keda"
    knob: Knob = THRESHOLD

    def metric_count(self, seen: Seen) -> tuple[int | None, str]:
        """ceil(waiting requests of all pods / threshold)."""
        queue = sum(sample.waiting for _, sample in seen.scraped)
        count = in_total(queue, self.setting, seen.existing, seen.replicas) if seen.scraped else None
        why = f"{queue:g} requests wait, threshold {self.setting:g} per replica."
        return count, why


KEDA: Final = Entry(THRESHOLD, Keda)
