"""Dynamo planner, load loop: one more replica if all engines would miss the SLO, one less if all would keep a margin.

Source: ai-dynamo/dynamo, planner/core/load_scaling.py and config/defaults.py, aggregated mode, SLA target: every 5 s
each engine's next TTFT and ITL are estimated from its queue and its cached tokens (`model`). The loop scales up by one
if all TTFT or all ITL exceed the target. It scales down by one only if, at N/(N−1) of the load, three conditions hold
for every engine: the queueing part of TTFT stays within 80 % of the target less the request's own prefill, ITL stays
below 80 % of its target, and the cached tokens fit. It holds while a replica is pending or an engine has no sample.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.targets import targets
from sluice_operator.autoscaler.values import EngineSample
from sluice_sim.policies.base import PeerLaw, Recommendation
from sluice_sim.policies.dynamo.model import Regression, regression, ttft
from sluice_sim.policies.metrics import increase
from sluice_sim.policies.metrics.increase import Traffic
from sluice_sim.policies.metrics.samples import Seen, kv_tokens
from sluice_sim.policies.policy import Entry, Knob

INTERVAL: Final = 5.0  # seconds
AVERAGES: Final = 60.0  # seconds for mean lengths and prefill work
SENSITIVITY: Final = 0.8
SHARE: Final = Knob("sla", 1.0, (0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0), "of the SLO")


@dataclass(frozen=True, slots=True)
class LoadMemory:
    """The counters, and the time of the loop's next run (s)."""

    ledger: increase.Ledger = field(default_factory=increase.Ledger)
    next_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Engine:
    """The state of one engine, in tokens."""

    queued: float  # uncached prompt tokens of waiting requests
    cached: float  # KV tokens that running requests hold
    room: float  # capacity of the KV cache


@dataclass(frozen=True, slots=True)
class Work:
    """The mean uncached prompt, mean prompt tokens per iteration, mean context, and maximum tokens per iteration."""

    prompt: float
    prompts: float
    context: float
    chunk: int


@dataclass(frozen=True, slots=True)
class DynamoLoad(PeerLaw[LoadMemory]):
    """`setting` is the share of the SLO targets that the law plans for."""

    setting: float = SHARE.default
    name: str = "dynamo-load"
    knob: Knob = SHARE
    memory_type: ClassVar = LoadMemory

    def recommend(
        self, spec: LLMDeploymentSpec, seen: Seen, memory: LoadMemory, now: float
    ) -> Recommendation[LoadMemory]:
        """Change the count by at most one replica every 5 s."""
        memory = replace(memory, ledger=increase.absorb(memory.ledger, seen, now, AVERAGES))
        if now < memory.next_at - 1e-9:
            return Recommendation(seen.replicas, "", memory)
        memory = replace(memory, next_at=now + INTERVAL)
        mean = increase.traffic(increase.over(memory.ledger, now, AVERAGES))
        models = [sample.step_model for _, sample in seen.ready if sample.step_model is not None]
        change = 0
        if seen.settled and models and mean is not None:
            by = regression(models, mean.prompt + mean.output / 2.0)
            target = targets(spec)
            work = _work(spec, seen, mean)
            engines = [_engine(sample, work) for _, sample in seen.ready]
            change = step(by, engines, work, target.ttft * self.setting, target.itl * self.setting)
        elif seen.settled and seen.ready and _is_idle(seen, memory.ledger, now):
            change = -1
        why = "every engine would miss the SLO." if change > 0 else "every engine would keep it with one less."
        return Recommendation(seen.replicas + change, why, memory)


def step(by: Regression, engines: list[Engine], work: Work, ttft_target: float, itl_target: float) -> int:
    """The change of replicas: +1, −1 or 0. Targets in seconds."""
    first = [ttft(by, one.queued + work.prompt, one.cached, work.chunk) for one in engines]
    tokens = [by.iteration(work.prompts, one.cached + work.context) for one in engines]
    if all(value > ttft_target for value in first) or all(value > itl_target for value in tokens):
        return 1
    count = len(engines)
    if count < 2:
        return 0
    more = count / (count - 1)
    return -1 if all(_survives(by, one, work, more, ttft_target, itl_target) for one in engines) else 0


def _survives(by: Regression, one: Engine, work: Work, more: float, ttft_target: float, itl_target: float) -> bool:
    own = ttft(by, work.prompt, one.cached * more, work.chunk)
    first = ttft(by, one.queued * more + work.prompt, one.cached * more, work.chunk)
    left = (ttft_target - own) * SENSITIVITY
    held = (one.cached + one.queued) * more
    token = by.iteration(work.prompts, held + work.context)
    return left > 0 and first - own < left and held < one.room and token < itl_target * SENSITIVITY


def _work(spec: LLMDeploymentSpec, seen: Seen, mean: Traffic) -> Work:
    """The mean work per request: in the steady state a running request is replaced every `output` iterations."""
    uncached = mean.prompt * (1.0 - mean.hit)
    running = sum(sample.running for _, sample in seen.ready) / len(seen.ready)
    chunk = spec.engine.scheduling.max_batched_tokens
    return Work(uncached, min(running * uncached / mean.output, chunk), mean.prompt + mean.output / 2.0, chunk)


def _engine(sample: EngineSample, work: Work) -> Engine:
    room = kv_tokens(sample)
    return Engine(sample.waiting * work.prompt, sample.kv_occupancy * room, room)


def _is_idle(seen: Seen, ledger: increase.Ledger, now: float) -> bool:
    window = increase.over(ledger, now, AVERAGES)
    busy = any(sample.running or sample.waiting for _, sample in seen.ready)
    return not busy and window.seconds >= AVERAGES / 2 and window.count("arrived_total") == 0


DYNAMO_LOAD: Final = Entry(SHARE, DynamoLoad)
