"""AIBrix's application-specific pod autoscaler (APA) on KV cache usage.

Source: vllm-project/aibrix, pkg/controller/podautoscaler/algorithm/apa.go and the documentation of its annotations.
Outside a tolerance of 10 % the replicas follow the ratio of the mean to the target (0.5 of gpu_cache_usage_perc), by
at most a factor of 2 per step. Recommendations are stabilised over 0 s up and 300 s down, as the HPA's are.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Final

from sluice_sim.policies.base import HpaLaw
from sluice_sim.policies.hpa.behavior import Behavior, Policy
from sluice_sim.policies.metrics.samples import Seen
from sluice_sim.policies.policy import Entry, Knob

TOLERANCE: Final = 0.1
RATE: Final = 2.0  # largest factor per step, up and down
USAGE: Final = Knob("targetValue", 0.5, (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8), "of the KV cache", most=1.0)
_NO_LIMIT: Final = (Policy("Percent", 1e6, 15), Policy("Pods", 1e6, 15))
BEHAVIOR: Final = Behavior(up_window=0.0, down_window=300.0, up=_NO_LIMIT, down=(Policy("Percent", 100, 15),))


@dataclass(frozen=True, slots=True)
class Apa(HpaLaw):
    """`setting` is the target KV cache usage, 0..1."""

    setting: float = USAGE.default
    name: str = "apa"
    knob: Knob = USAGE

    behavior: ClassVar = BEHAVIOR

    def metric_count(self, seen: Seen) -> tuple[int | None, str]:
        """Scale on the mean over the pods with a fresh sample; hold without any."""
        usages = [sample.kv_occupancy for _, sample in seen.ready]
        mean = sum(usages) / len(usages) if usages else 0.0
        why = f"{mean:.0%} of the KV cache is used, target {self.setting:.0%}."
        return target(seen.replicas, mean, self.setting) if usages else None, why


def target(pods: int, use: float, wanted: float, up: float = RATE, down: float = RATE) -> int:
    """Replicas for a mean `use` per pod and the target `wanted`. `up` and `down` bound the factor of change."""
    ratio = use / wanted
    exact = math.ceil(pods * ratio - 1e-9)
    if ratio > 1.0 + TOLERANCE + 1e-12:
        return min(exact, math.ceil(up * pods))
    if ratio < 1.0 - TOLERANCE - 1e-12:
        return max(exact, math.floor(pods / down))
    return pods


APA: Final = Entry(USAGE, Apa)
