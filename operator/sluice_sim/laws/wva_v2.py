"""llm-d's Workload Variant Autoscaler, saturation analyser v2: tokens wanted against tokens that fit.

Source: llm-d-workload-variant-autoscaler, internal/engines/analyzers/saturation_v2/analyzer.go and
pipeline/cost_aware_optimizer.go. A replica holds min(k1, k2) tokens: k1 = 0.80 of its KV cache; k2 = the tokens in
use while at least 5 requests wait, else the mean of the last ten such observations for outputs of this length, else
from the batch limits N·(I + O/2) with N = min(B·O/(I + O), S). Demand is the tokens in use plus waiting × mean
prompt. More replicas where demand / 0.85 exceeds what ready and pending ones hold, fewer where demand / 0.70 leaves
whole replicas of the ready ones free.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.values import Decision, Observed
from sluice_sim.laws import growth, wva_hpa
from sluice_sim.laws.law import Entry, Knob, ask
from sluice_sim.laws.seen import kv_tokens, see
from sluice_sim.laws.wva_v1 import KV_FULL, QUEUE_FULL, Peaks

WINDOW: Final = 60.0  # seconds
HISTORY: Final = 10  # observations of k2
DOWN_OF_UP: Final = 0.70 / 0.85  # the lower boundary; the knob moves both
UP: Final = Knob(
    "scaleUpThreshold", 0.85, (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.92, 0.98), "of the capacity", most=1.0
)

History = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica's minute. Tokens and requests."""

    in_use: float
    total: float
    waiting: float


@dataclass(frozen=True, slots=True)
class Shape:
    """The mean request and the engine's batch limits."""

    prompt: float
    output: float
    batched_tokens: int
    sequences: int


@dataclass(frozen=True, slots=True)
class TokenMemory:
    """Peaks, counters, observed capacities and what was published."""

    peaks: Peaks = field(default_factory=Peaks)
    ledger: growth.Ledger = field(default_factory=growth.Ledger)
    history: History = field(default_factory=dict)
    published: wva_hpa.Published = field(default_factory=wva_hpa.Published)


@dataclass(frozen=True, slots=True)
class WvaV2:
    """`setting` is the utilisation above which replicas are added."""

    setting: float = UP.default
    name: str = "wva-v2"
    knob: Knob = UP
    admits: bool = False

    def initial(self) -> TokenMemory:
        """Nothing seen yet."""
        return TokenMemory()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: TokenMemory, now: float
    ) -> tuple[Decision, TokenMemory]:
        """Peaks and counters at every call, a wanted count once a minute; held where no replica reports."""
        seen = see(spec, observed, now)
        peaks = memory.peaks.add(seen, now)
        ledger = growth.absorb(memory.ledger, seen, now, WINDOW)
        history, published = memory.history, memory.published
        if wva_hpa.is_due(published, now):
            wanted, mean = seen.replicas, growth.traffic(growth.over(ledger, now, WINDOW))
            if seen.ready:
                replicas = []
                for pod, sample in seen.ready:
                    kv, queue = peaks.of(pod.name, now)
                    replicas.append(Replica(kv * kv_tokens(sample), kv_tokens(sample), queue))
                scheduling = spec.engine.scheduling
                shape = Shape(
                    prompt=0.0 if mean is None else mean.prompt,
                    output=0.0 if mean is None else mean.output,
                    batched_tokens=scheduling.max_batched_tokens,
                    sequences=scheduling.max_num_seqs,
                )
                holds, demand, history = analyse(replicas, shape, history)
                pending = max(0, seen.replicas - len(seen.ready))
                wanted += step(holds, demand, len(seen.ready), pending, self.setting)
            published = wva_hpa.publish(published, max(1, wanted), now)
        after, published = wva_hpa.follow(spec, published, seen, now)
        why = f"{published.wanted} are wanted for the tokens in use and waiting."
        return ask(spec, observed, self.name, after, why), TokenMemory(peaks, ledger, history, published)


def analyse(replicas: list[Replica], shape: Shape, history: History) -> tuple[float, float, History]:
    """Tokens that one replica holds (the median), tokens wanted in all, and the history with what was observed."""
    capacities = []
    for one in replicas:
        k2, history = _compute_bound(one, shape, history)
        capacities.append(min(KV_FULL * one.total, k2))
    demand = math.fsum(one.in_use + one.waiting * shape.prompt for one in replicas)
    return median(capacities), demand, history


def step(holds: float, demand: float, ready: int, pending: int, up: float = UP.default) -> int:
    """Replicas to add (positive) or to take away."""
    if holds <= 0:
        return 0
    required = demand / up - (ready + pending) * holds
    if required > 0:
        return math.ceil(required / holds - 1e-9)
    spare = ready * holds - demand / (up * DOWN_OF_UP)
    return -max(0, math.floor(spare / holds + 1e-9))


def from_limits(shape: Shape) -> float:
    """Tokens that the batch limits keep in the cache in a steady state; 0 where the lengths are not known."""
    if shape.output <= 0 or shape.batched_tokens <= 0:
        return 0.0
    steady = min(shape.batched_tokens * shape.output / (shape.prompt + shape.output), shape.sequences)
    return steady * (shape.prompt + shape.output / 2.0)


def _compute_bound(one: Replica, shape: Shape, history: History) -> tuple[float, History]:
    key = "short" if shape.output < 100 else "medium" if shape.output < 500 else "long"
    observed = history.get(key, ())
    if one.waiting >= QUEUE_FULL and one.in_use > 0:
        return one.in_use, {**history, key: (*observed, one.in_use)[-HISTORY:]}
    if observed:
        return fmean(observed), history
    return from_limits(shape) or KV_FULL * one.total, history


WVA_V2: Final = Entry(UP, WvaV2)
