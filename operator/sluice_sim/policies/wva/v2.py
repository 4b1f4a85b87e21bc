"""llm-d's Workload Variant Autoscaler, saturation analyser v2: token demand against token capacity.

Source: llm-d-workload-variant-autoscaler, internal/engines/analyzers/saturation_v2/analyzer.go and
pipeline/cost_aware_optimizer.go. The capacity of a replica is min(k1, k2) tokens. k1 = 0.80 of its KV cache. k2 = the
tokens in use while at least 5 requests wait; else the mean of the last ten such observations for outputs of a similar
length; else N·(I + O/2) from the batch limits, with N = min(B·O/(I + O), S). Demand is the tokens in use plus
waiting × mean prompt. Replicas are added if demand / 0.85 exceeds the capacity of the ready and pending replicas, and
removed if demand / 0.70 leaves the capacity of whole ready replicas unused.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import ClassVar, Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.policies.base import PeerLaw, Recommendation
from sluice_sim.policies.metrics import increase
from sluice_sim.policies.metrics.samples import Seen, kv_tokens
from sluice_sim.policies.policy import Entry, Knob
from sluice_sim.policies.wva import hpa
from sluice_sim.policies.wva.v1 import KV_FULL, QUEUE_FULL, Peaks

WINDOW: Final = 60.0  # seconds
HISTORY: Final = 10  # observations of k2
DOWN_OF_UP: Final = 0.70 / 0.85  # lower over upper threshold; the knob moves both
UP: Final = Knob(
    "scaleUpThreshold", 0.85, (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.92, 0.98), "of the capacity", most=1.0
)

History = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica's peaks over a minute: tokens in use, tokens of KV cache, waiting requests."""

    in_use: float
    total: float
    waiting: float


@dataclass(frozen=True, slots=True)
class Shape:
    """The mean request (tokens) and the engine's batch limits."""

    prompt: float
    output: float
    batched_tokens: int
    sequences: int


@dataclass(frozen=True, slots=True)
class TokenMemory:
    """The peaks, the counters, the observed values of k2 by output length, and the published count."""

    peaks: Peaks = field(default_factory=Peaks)
    ledger: increase.Ledger = field(default_factory=increase.Ledger)
    history: History = field(default_factory=dict)
    published: hpa.Published = field(default_factory=hpa.Published)


@dataclass(frozen=True, slots=True)
class WvaV2(PeerLaw[TokenMemory]):
    """`setting` is the utilisation above which replicas are added."""

    setting: float = UP.default
    name: str = "wva-v2"
    knob: Knob = UP
    memory_type: ClassVar = TokenMemory

    def recommend(
        self, spec: LLMDeploymentSpec, seen: Seen, memory: TokenMemory, now: float
    ) -> Recommendation[TokenMemory]:
        """Update peaks and counters at every call; publish a count once a minute, unchanged without a fresh sample."""
        peaks = memory.peaks.add(seen, now)
        ledger = increase.absorb(memory.ledger, seen, now, WINDOW)
        history, published = memory.history, memory.published
        if hpa.is_due(published, now):
            wanted, mean = seen.replicas, increase.traffic(increase.over(ledger, now, WINDOW))
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
            published = hpa.publish(published, max(1, wanted), now)
        after, published = hpa.follow(spec, published, seen, now)
        why = f"{published.wanted} are wanted for the tokens in use and waiting."
        return Recommendation(after, why, TokenMemory(peaks, ledger, history, published))


def analyse(replicas: list[Replica], shape: Shape, history: History) -> tuple[float, float, History]:
    """(median capacity of a replica in tokens, total demand in tokens, the history with the new observations)."""
    capacities = []
    for one in replicas:
        k2, history = _compute_bound(one, shape, history)
        capacities.append(min(KV_FULL * one.total, k2))
    demand = math.fsum(one.in_use + one.waiting * shape.prompt for one in replicas)
    return median(capacities), demand, history


def step(holds: float, demand: float, ready: int, pending: int, up: float = UP.default) -> int:
    """Replicas to add (positive) or to remove (negative). `holds` is the capacity of a replica; tokens, as `demand`."""
    if holds <= 0:
        return 0
    required = demand / up - (ready + pending) * holds
    if required > 0:
        return math.ceil(required / holds - 1e-9)
    spare = ready * holds - demand / (up * DOWN_OF_UP)
    return -max(0, math.floor(spare / holds + 1e-9))


def from_limits(shape: Shape) -> float:
    """Tokens in the KV cache in a steady state under the batch limits; 0 if the lengths are unknown."""
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
