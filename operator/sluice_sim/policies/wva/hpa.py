"""The HPA through which llm-d's Workload Variant Autoscaler acts: the desired count is its external metric.

Source: charts/workload-variant-autoscaler/values.yaml: AverageValue 1, stabilisation of 240 s in both directions,
10 pods per 150 s. The autoscaler itself runs every 60 s.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.policies.hpa.behavior import Behavior, HpaMemory, Policy, due, settle
from sluice_sim.policies.hpa.ratio import in_total
from sluice_sim.policies.metrics.samples import Seen
from sluice_sim.policies.policy import bounds

PERIOD: Final = 60.0  # seconds
BEHAVIOR: Final = Behavior(
    up_window=240.0, down_window=240.0, up=(Policy("Pods", 10, 150),), down=(Policy("Pods", 10, 150),)
)


@dataclass(frozen=True, slots=True)
class Published:
    """The gauge with the desired count, the time of its next update (s), and the state of the HPA that reads it."""

    wanted: int | None = None
    next_at: float = float("-inf")
    hpa: HpaMemory = field(default_factory=HpaMemory)


def is_due(published: Published, now: float) -> bool:
    """True if the autoscaler runs now."""
    return now >= published.next_at - 1e-9


def is_under_way(published: Published, seen: Seen) -> bool:
    """True if the HPA has yet to apply the last count. A difference within its tolerance does not count."""
    wanted = published.wanted
    if wanted is None or wanted == seen.replicas:
        return False
    return in_total(wanted, 1.0, seen.existing, seen.replicas) != seen.replicas


def publish(published: Published, wanted: int | None, now: float) -> Published:
    """Update the gauge."""
    return replace(published, wanted=wanted, next_at=now + PERIOD)


def follow(spec: LLMDeploymentSpec, published: Published, seen: Seen, now: float) -> tuple[int, Published]:
    """The replicas that the HPA sets now, and the next state."""
    if not due(published.hpa, now):
        return seen.replicas, published
    wanted = None
    if published.wanted is not None:
        wanted = in_total(published.wanted, 1.0, seen.existing, seen.replicas)
    after, hpa = settle(published.hpa, BEHAVIOR, seen.replicas, wanted, bounds(spec), now)
    return after, replace(published, hpa=hpa)
