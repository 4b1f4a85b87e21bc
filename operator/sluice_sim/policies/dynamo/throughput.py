"""Dynamo planner, throughput loop: replicas for the load predicted for the next interval.

Source: ai-dynamo/dynamo, planner/core/throughput_scaling.py and config/defaults.py, aggregated mode: every 180 s the
requests, mean input and mean output lengths of the interval are observed and predicted one interval ahead;
replicas = ceil(predicted rate / best rate of one engine), see `model`. The loop holds while a replica is pending. Of
Dynamo's predictors this implements the Kalman filter; the default, auto-ARIMA, is a search over models.
"""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.targets import max_concurrency, targets
from sluice_sim.policies.base import PeerLaw, Recommendation
from sluice_sim.policies.dynamo.kalman import Trend, observe
from sluice_sim.policies.dynamo.model import Limits, best_rate, regression
from sluice_sim.policies.metrics import increase
from sluice_sim.policies.metrics.increase import Traffic
from sluice_sim.policies.metrics.samples import Seen, kv_tokens
from sluice_sim.policies.policy import Entry, Knob

INTERVAL: Final = 180.0  # seconds
SHARE: Final = Knob("sla", 1.0, (0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0), "of the SLO")


@dataclass(frozen=True, slots=True)
class ThroughputMemory:
    """The counters, the three predictors, and the end of the current interval (s)."""

    ledger: increase.Ledger = field(default_factory=increase.Ledger)
    requests: Trend = field(default_factory=Trend)
    prompt: Trend = field(default_factory=Trend)
    output: Trend = field(default_factory=Trend)
    hit: float = 0.0  # prefix-cache hit ratio of the last interval with traffic
    next_at: float | None = None


@dataclass(frozen=True, slots=True)
class DynamoThroughput(PeerLaw[ThroughputMemory]):
    """`setting` is the share of the SLO targets that the law plans for."""

    setting: float = SHARE.default
    name: str = "dynamo-throughput"
    knob: Knob = SHARE
    memory_type: ClassVar = ThroughputMemory

    def recommend(
        self, spec: LLMDeploymentSpec, seen: Seen, memory: ThroughputMemory, now: float
    ) -> Recommendation[ThroughputMemory]:
        """Update the counters at every call; decide on a count at the end of each interval."""
        memory = replace(memory, ledger=increase.absorb(memory.ledger, seen, now, INTERVAL))
        if memory.next_at is None:
            memory = replace(memory, next_at=now + INTERVAL)
        if memory.next_at is None or now < memory.next_at - 1e-9:
            return Recommendation(seen.replicas, "", memory)
        memory = predict(replace(memory, next_at=now + INTERVAL), increase.over(memory.ledger, now, INTERVAL))
        rate = max(0.0, memory.requests.level) / INTERVAL
        wanted = seen.replicas
        if memory.output.started and memory.prompt.started and seen.settled:
            mean = Traffic(rate, max(1.0, memory.prompt.level), max(1.0, memory.output.level), memory.hit)
            each = engine_rate(spec, seen, mean, self.setting)
            wanted = seen.replicas if each <= 0 else max(1, math.ceil(rate / each - 1e-9))
        why = f"{rate:.3g} requests per second are predicted for the next {INTERVAL:.0f} s."
        return Recommendation(wanted, why, memory)


def predict(memory: ThroughputMemory, window: increase.Growth) -> ThroughputMemory:
    """Update the predictors with an interval. Without traffic the predictors of lengths do not change."""
    scale = INTERVAL / window.seconds if window.seconds > 0 else 0.0
    memory = replace(memory, requests=observe(memory.requests, window.count("arrived_total") * scale))
    mean = increase.traffic(window)
    if mean is None:
        return memory
    return replace(
        memory, prompt=observe(memory.prompt, mean.prompt), output=observe(memory.output, mean.output), hit=mean.hit
    )


def engine_rate(spec: LLMDeploymentSpec, seen: Seen, mean: Traffic, share: float) -> float:
    """Requests per second that one engine serves within `share` of the SLO targets; 0 while no engine has a fit."""
    fits = [(sample, sample.step_model) for _, sample in seen.ready if sample.step_model is not None]
    if not fits:
        return 0.0
    limits = Limits(
        batched_tokens=spec.engine.scheduling.max_batched_tokens,
        sequences=max_concurrency(spec),
        kv_tokens=min(kv_tokens(sample) for sample, _ in fits),
    )
    target = targets(spec)
    by = regression([model for _, model in fits], mean.prompt + mean.output / 2.0)
    return best_rate(by, mean, limits, target.ttft * share, target.itl * share)


DYNAMO_THROUGHPUT: Final = Entry(SHARE, DynamoThroughput)
