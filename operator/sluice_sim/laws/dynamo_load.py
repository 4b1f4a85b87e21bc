"""Dynamo planner, load loop: one replica more where all engines would miss, one less where all would keep 80 %.

Source: ai-dynamo/dynamo, planner/core/load_scaling.py and config/defaults.py, aggregated mode, SLA target: every 5 s
each engine's next TTFT and ITL are estimated from its queue and its cached tokens (`dynamo_model`). Up by one if all
TTFT or all ITL exceed the target; down by one only if, with N/(N−1) of the load, every engine's queue would keep its
TTFT within 80 % of what the target leaves beyond its own prompt, every ITL would stay below 80 %, and the cached
tokens would fit. Nothing while replicas are on their way or an engine does not report.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.physics import targets
from sluice_operator.decide.values import Decision, EngineSample, Observed
from sluice_sim.laws import growth
from sluice_sim.laws.dynamo_model import Regression, regression, ttft
from sluice_sim.laws.growth import Traffic
from sluice_sim.laws.law import Entry, Knob, ask
from sluice_sim.laws.seen import Seen, kv_tokens, see

INTERVAL: Final = 5.0  # seconds
AVERAGES: Final = 60.0  # seconds that mean lengths and prompt work are taken over
SENSITIVITY: Final = 0.8
SHARE: Final = Knob("sla", 1.0, (0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0), "of the SLO")


@dataclass(frozen=True, slots=True)
class LoadMemory:
    """Counters, and when the loop runs next."""

    ledger: growth.Ledger = field(default_factory=growth.Ledger)
    next_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine now. Tokens."""

    queued: float  # uncached prompt tokens that wait
    cached: float  # that its requests hold
    room: float  # of its KV cache


@dataclass(frozen=True, slots=True)
class Work:
    """The mean prompt (uncached), the mean prompt tokens per iteration, the mean context, the tokens per iteration."""

    prompt: float
    prompts: float
    context: float
    chunk: int


@dataclass(frozen=True, slots=True)
class DynamoLoad:
    """`setting` is the share of the SLO that is planned for."""

    setting: float = SHARE.default
    name: str = "dynamo-load"
    knob: Knob = SHARE
    admits: bool = False

    def initial(self) -> LoadMemory:
        """Nothing seen yet."""
        return LoadMemory()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: LoadMemory, now: float
    ) -> tuple[Decision, LoadMemory]:
        """One step at a time."""
        seen = see(spec, observed, now)
        memory = replace(memory, ledger=growth.absorb(memory.ledger, seen, now, AVERAGES))
        if now < memory.next_at - 1e-9:
            return ask(spec, observed, self.name, seen.replicas, ""), memory
        memory = replace(memory, next_at=now + INTERVAL)
        mean = growth.traffic(growth.over(memory.ledger, now, AVERAGES))
        models = [sample.step_model for _, sample in seen.ready if sample.step_model is not None]
        change = 0
        if seen.settled and models and mean is not None:
            by = regression(models, mean.prompt + mean.output / 2.0)
            promised = targets(spec)
            work = _work(spec, seen, mean)
            engines = [_engine(sample, work) for _, sample in seen.ready]
            change = step(by, engines, work, promised.ttft * self.setting, promised.itl * self.setting)
        elif seen.settled and seen.ready and _is_idle(seen, memory.ledger, now):
            change = -1
        why = "every engine would miss the SLO." if change > 0 else "every engine would keep it with one less."
        return ask(spec, observed, self.name, seen.replicas + change, why), memory


def step(by: Regression, engines: list[Engine], work: Work, ttft_target: float, itl_target: float) -> int:
    """+1, −1 or 0."""
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
    """Each of n running requests is followed by a new prompt every `output` iterations."""
    uncached = mean.prompt * (1.0 - mean.hit)
    running = sum(sample.running for _, sample in seen.ready) / len(seen.ready)
    chunk = spec.engine.scheduling.max_batched_tokens
    return Work(uncached, min(running * uncached / mean.output, chunk), mean.prompt + mean.output / 2.0, chunk)


def _engine(sample: EngineSample, work: Work) -> Engine:
    room = kv_tokens(sample)
    return Engine(sample.waiting * work.prompt, sample.kv_occupancy * room, room)


def _is_idle(seen: Seen, ledger: growth.Ledger, now: float) -> bool:
    window = growth.over(ledger, now, AVERAGES)
    busy = any(sample.running or sample.waiting for _, sample in seen.ready)
    return not busy and window.seconds >= AVERAGES / 2 and window.count("arrived_total") == 0


DYNAMO_LOAD: Final = Entry(SHARE, DynamoLoad)
