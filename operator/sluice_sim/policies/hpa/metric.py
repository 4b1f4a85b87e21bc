"""The Horizontal Pod Autoscaler on an engine metric: waiting requests, running requests, or KV cache occupancy.

Sources of the algorithm: `ratio` and `behavior`. Sources of the targets: GKE's guide to autoscaling inference ("start
the queue threshold at 3-5"), llm-d/llm-d, guides/workload-autoscaling/keda-epp/README.md (16 running requests per
replica) and keda-epp-token-aware/README.md (0.8 of a KV cache per replica).
"""

from dataclasses import dataclass
from typing import Final

from sluice_sim.policies.base import HpaLaw
from sluice_sim.policies.hpa.ratio import per_pod
from sluice_sim.policies.metrics.samples import Metric, Seen, occupancy, running, waiting
from sluice_sim.policies.policy import Entry, Knob

QUEUE: Final = Knob("averageValue", 5.0, (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 12.0, 20.0), "waiting requests")
RUNNING: Final = Knob("averageValue", 16.0, (4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0), "running requests")
KV: Final = Knob("averageValue", 0.8, (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), "of the KV cache", most=1.0)


@dataclass(frozen=True, slots=True)
class Hpa(HpaLaw):
    """One HorizontalPodAutoscaler with one metric of type Pods. `setting` is the target averageValue."""

    name: str
    metric: Metric
    knob: Knob
    setting: float

    def metric_count(self, seen: Seen) -> tuple[int | None, str]:
        """Scale on the ratio of the pods' mean to the target."""
        values = [self.metric(sample) for _, sample in seen.ready]
        count = per_pod(values, self.setting, seen.missing, seen.pending, seen.replicas)
        mean = sum(values) / len(values) if values else 0.0
        why = f"{mean:.3g} {self.knob.unit} per replica, target {self.setting:g}."
        return count, why


ON_QUEUE: Final = Entry(QUEUE, lambda target: Hpa("hpa-queue", waiting, QUEUE, target))
ON_RUNNING: Final = Entry(RUNNING, lambda target: Hpa("hpa-running", running, RUNNING, target))
ON_KV: Final = Entry(KV, lambda target: Hpa("hpa-kv", occupancy, KV, target))
