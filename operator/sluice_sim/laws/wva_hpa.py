"""The HPA through which llm-d's Workload Variant Autoscaler acts: it takes the wanted count as an external value.

Source: charts/workload-variant-autoscaler/values.yaml: AverageValue 1, stabilisation of 240 s both ways, 10 pods in
150 s; the autoscaler itself runs every 60 s.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.laws.hpa_behavior import Behavior, HpaMemory, Policy, due, settle
from sluice_sim.laws.hpa_ratio import in_total
from sluice_sim.laws.law import bounds
from sluice_sim.laws.seen import Seen

PERIOD: Final = 60.0  # seconds
BEHAVIOR: Final = Behavior(
    up_window=240.0, down_window=240.0, up=(Policy("Pods", 10, 150),), down=(Policy("Pods", 10, 150),)
)


@dataclass(frozen=True, slots=True)
class Published:
    """The gauge with the wanted count, when it is written next, and the HPA that reads it."""

    wanted: int | None = None
    next_at: float = float("-inf")
    hpa: HpaMemory = field(default_factory=HpaMemory)


def is_due(published: Published, now: float) -> bool:
    """Whether the autoscaler runs now."""
    return now >= published.next_at - 1e-9


def is_under_way(published: Published, seen: Seen) -> bool:
    """Whether the HPA has yet to follow the last count. One that its tolerance swallows is given up."""
    wanted = published.wanted
    if wanted is None or wanted == seen.replicas:
        return False
    return in_total(wanted, 1.0, seen.existing, seen.replicas) != seen.replicas


def publish(published: Published, wanted: int | None, now: float) -> Published:
    """Write the gauge."""
    return replace(published, wanted=wanted, next_at=now + PERIOD)


def follow(spec: LLMDeploymentSpec, published: Published, seen: Seen, now: float) -> tuple[int, Published]:
    """What the HPA makes of it."""
    if not due(published.hpa, now):
        return seen.replicas, published
    wanted = None
    if published.wanted is not None:
        wanted = in_total(published.wanted, 1.0, seen.existing, seen.replicas)
    after, hpa = settle(published.hpa, BEHAVIOR, seen.replicas, wanted, bounds(spec), now)
    return after, replace(published, hpa=hpa)
