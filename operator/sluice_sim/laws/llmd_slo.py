"""llm-d's SLO-aware autoscaling: the pool's 90th percentiles against the SLO, through KEDA and an HPA.

Source: llm-d/llm-d, guides/workload-autoscaling/README.slo-aware.md. Every 15 s
s_raw = max(P90 TTFT / S1, P90 TPOT / S2) over one minute, 0 without traffic; s = its mean over 45 s, each clamped at
2. Above 0.55 the pool grows by ceil(n·(s·c/0.55 − 1)), where c = ready / n credits pods that warm up; below 0.40 it
shrinks by floor(n·(1 − s/0.40)); in between it stays. The HPA takes that count as an external value with target 1:
up after 30 s, at most max(100 %, 4 pods) a minute; down after 180 s, one pod in 120 s. The measured latencies are
used (its predictor is optional there). TPOT is read from the inter-token histogram, which weighs requests by length.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.physics import targets
from sluice_operator.decide.values import Decision, Observed
from sluice_sim.laws import growth, moving
from sluice_sim.laws.hpa_behavior import Behavior, HpaMemory, Policy, due, settle
from sluice_sim.laws.hpa_ratio import in_total
from sluice_sim.laws.law import Entry, Knob, ask, bounds, current
from sluice_sim.laws.seen import see

QUANTILE: Final = 0.9
RATE_WINDOW: Final = 60.0  # seconds
SMOOTHING: Final = 45.0
CLAMP: Final = 2.0
DOWN_OF_UP: Final = 0.40 / 0.55  # the lower edge of the band; the knob moves both
UP: Final = Knob("upThreshold", 0.55, (0.3, 0.4, 0.48, 0.55, 0.65, 0.75, 0.85, 0.95, 1.1), "of the SLO")
BEHAVIOR: Final = Behavior(
    up_window=30.0,
    down_window=180.0,
    up=(Policy("Percent", 100, 60), Policy("Pods", 4, 60)),
    down=(Policy("Pods", 1, 120),),
)


@dataclass(frozen=True, slots=True)
class SloMemory:
    """Counters, the signal's window, and the HPA's."""

    ledger: growth.Ledger = field(default_factory=growth.Ledger)
    saturation: moving.Points = ()
    hpa: HpaMemory = field(default_factory=HpaMemory)


@dataclass(frozen=True, slots=True)
class LlmdSlo:
    """`setting` is the share of the SLO at which the pool grows."""

    setting: float = UP.default
    name: str = "llm-d-slo"
    knob: Knob = UP
    admits: bool = False

    def initial(self) -> SloMemory:
        """Nothing seen yet."""
        return SloMemory()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: SloMemory, now: float
    ) -> tuple[Decision, SloMemory]:
        """Counters at every call, the signal and the count every 15 s."""
        count, seen = current(spec, observed), see(spec, observed, now)
        memory = replace(memory, ledger=growth.absorb(memory.ledger, seen, now, RATE_WINDOW))
        if not due(memory.hpa, now):
            return ask(spec, observed, self.name, count, ""), memory
        window, promised = growth.over(memory.ledger, now, RATE_WINDOW), targets(spec)
        raw = max((window.ttft(QUANTILE) or 0.0) / promised.ttft, (window.itl(QUANTILE) or 0.0) / promised.itl)
        points = moving.add(memory.saturation, now, min(raw, CLAMP), SMOOTHING)
        saturation = moving.mean(points, now, SMOOTHING) or 0.0
        wanted: int | None = None
        if seen.scraped:  # without any series the query fails and the HPA holds
            asked = desired(saturation, seen.existing, len(seen.ready), self.setting)
            wanted = in_total(asked, 1.0, seen.existing, count)
        after, hpa = settle(memory.hpa, BEHAVIOR, count, wanted, bounds(spec), now)
        why = f"the 90th percentiles stand at {saturation:.2f} of the SLO, {self.setting:g} wanted."
        return ask(spec, observed, self.name, after, why), SloMemory(memory.ledger, points, hpa)


def desired(saturation: float, provisioned: int, ready: int, up: float = UP.default) -> int:
    """Replicas for a smoothed saturation."""
    down = up * DOWN_OF_UP
    if saturation > up:
        credit = ready / provisioned if 0 < ready < provisioned else 1.0
        return provisioned + math.ceil(provisioned * (saturation * credit / up - 1.0) - 1e-9)
    if saturation < down:
        return provisioned - math.floor(provisioned * (1.0 - saturation / down) + 1e-9)
    return provisioned


LLMD_SLO: Final = Entry(UP, LlmdSlo)
