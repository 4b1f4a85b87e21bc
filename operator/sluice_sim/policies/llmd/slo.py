"""llm-d's SLO-aware autoscaling: the pool's 90th percentiles against the SLO, through KEDA and an HPA.

Source: llm-d/llm-d, guides/workload-autoscaling/README.slo-aware.md. Every 15 s,
s_raw = max(P90 TTFT / S1, P90 TPOT / S2) over one minute, 0 without traffic; s = mean of s_raw over 45 s, each value
clamped at 2. Above 0.55 the pool of n grows by ceil(n·(s·c/0.55 − 1)), where c = ready / n credits warming pods; below
0.40 it shrinks by floor(n·(1 − s/0.40)); in between it does not change. The HPA takes that count as an external value
with target 1: up after 30 s, at most max(100 %, 4 pods) per minute; down after 180 s, one pod per 120 s. This
implementation uses measured latencies (llm-d's predictor is optional) and reads TPOT from the inter-token histogram,
which weighs requests by length.
"""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.targets import targets
from sluice_sim.policies.base import PeerLaw, Recommendation
from sluice_sim.policies.hpa.behavior import Behavior, HpaMemory, Policy, due, settle
from sluice_sim.policies.hpa.ratio import in_total
from sluice_sim.policies.metrics import increase, moving_window
from sluice_sim.policies.metrics.samples import Seen
from sluice_sim.policies.policy import Entry, Knob, bounds

QUANTILE: Final = 0.9
RATE_WINDOW: Final = 60.0  # seconds
SMOOTHING: Final = 45.0  # seconds
CLAMP: Final = 2.0
DOWN_OF_UP: Final = 0.40 / 0.55  # lower over upper threshold; the knob moves both
UP: Final = Knob("upThreshold", 0.55, (0.3, 0.4, 0.48, 0.55, 0.65, 0.75, 0.85, 0.95, 1.1), "of the SLO")
BEHAVIOR: Final = Behavior(
    up_window=30.0,
    down_window=180.0,
    up=(Policy("Percent", 100, 60), Policy("Pods", 4, 60)),
    down=(Policy("Pods", 1, 120),),
)


@dataclass(frozen=True, slots=True)
class SloMemory:
    """The counters, the window of the saturation signal, and the HPA's state."""

    ledger: increase.Ledger = field(default_factory=increase.Ledger)
    saturation: moving_window.Points = ()
    hpa: HpaMemory = field(default_factory=HpaMemory)


@dataclass(frozen=True, slots=True)
class LlmdSlo(PeerLaw[SloMemory]):
    """`setting` is the share of the SLO at which the pool grows."""

    setting: float = UP.default
    name: str = "llm-d-slo"
    knob: Knob = UP
    memory_type: ClassVar = SloMemory

    def recommend(
        self, spec: LLMDeploymentSpec, seen: Seen, memory: SloMemory, now: float
    ) -> Recommendation[SloMemory]:
        """Update the counters at every call, the saturation and the count every 15 s."""
        count = seen.replicas
        memory = replace(memory, ledger=increase.absorb(memory.ledger, seen, now, RATE_WINDOW))
        if not due(memory.hpa, now):
            return Recommendation(count, "", memory)
        window, target = increase.over(memory.ledger, now, RATE_WINDOW), targets(spec)
        raw = max((window.ttft(QUANTILE) or 0.0) / target.ttft, (window.itl(QUANTILE) or 0.0) / target.itl)
        points = moving_window.add(memory.saturation, now, min(raw, CLAMP), SMOOTHING)
        saturation = moving_window.mean(points, now, SMOOTHING) or 0.0
        wanted: int | None = None
        if seen.scraped:  # without any series the query fails and the HPA holds the count
            asked = desired(saturation, seen.existing, len(seen.ready), self.setting)
            wanted = in_total(asked, 1.0, seen.existing, count)
        after, hpa = settle(memory.hpa, BEHAVIOR, count, wanted, bounds(spec), now)
        why = f"the 90th percentiles stand at {saturation:.2f} of the SLO, {self.setting:g} wanted."
        return Recommendation(after, why, SloMemory(memory.ledger, points, hpa))


def desired(saturation: float, provisioned: int, ready: int, up: float = UP.default) -> int:
    """Replicas for a smoothed saturation, with `provisioned` replicas of which `ready` are ready."""
    down = up * DOWN_OF_UP
    if saturation > up:
        credit = ready / provisioned if 0 < ready < provisioned else 1.0
        return provisioned + math.ceil(provisioned * (saturation * credit / up - 1.0) - 1e-9)
    if saturation < down:
        return provisioned - math.floor(provisioned * (1.0 - saturation / down) + 1e-9)
    return provisioned


LLMD_SLO: Final = Entry(UP, LlmdSlo)
