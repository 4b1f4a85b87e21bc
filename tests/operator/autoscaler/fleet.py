"""A fleet of fluid engines for stories about decide(): time is injected, every number follows from the physics.

Each engine serves what its limit lets run at the rate of the step-time model; it publishes the contract's
counters, gauges and histograms as a scrape would read them. Its shadow queues take its arrivals one by one.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.signals.histograms import BOUNDS
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import (
    ColdStart,
    Decision,
    EngineSample,
    Histogram,
    Observed,
    PodPhase,
    PodView,
    ShadowTotals,
)
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.shadow_queues import EngineLimits, ShadowEngine, ShadowQueues, shadow_engine
from sluice_perfmodel.step_time import StepTimeModel
from sluice_perfmodel.workload import Work, prefill_seconds, throughput, token_seconds

MODEL = StepTimeModel(base=0.03, prefill_token=0.0002, sequence=0.004, kv_token=2e-6, steps=1000)
WORK = Work(output=40, uncached=60)
ITL, TTFT = 0.1, 2.0
MEMORY = 900.0  # seconds: the default of scaling.burstMemorySeconds
BLOCK = 16  # tokens


def spec(**changes: Any) -> LLMDeploymentSpec:
    """A spec with 1 to 3 replicas; `changes` are merged one level deep, camelCase as on the wire."""
    wire: dict[str, Any] = {
        "model": {"uri": "file:///m"},
        "slo": {"ttftMilliseconds": 2000, "itlMilliseconds": 100, "attainmentPercent": "99"},
        "scaling": {"minReplicas": 1, "maxReplicas": 3, "scaleDownStabilizationSeconds": 60},
        "admission": {"concurrency": {"min": 2, "max": 64}, "maxQueueSeconds": 10},
    }
    for name, value in changes.items():
        wire[name] = {**wire[name], **value} if isinstance(value, dict) and name in wire else value
    return LLMDeploymentSpec.model_validate(wire)


def with_signals(state: AutoscalerState, **changes: Any) -> AutoscalerState:
    """The state with other signals."""
    return replace(state, signals=replace(state.signals, **changes))


@dataclass
class Engine:
    """One engine as a fluid: `inside` requests, of which the limit lets `running` run."""

    limit: float = 13
    queue: float = 40
    kv_blocks: float = 2_000
    inside: float = 0.0
    saved: float = 0.0  # share of the prompt tokens that the cache holds; steps do not get shorter by it here
    model: StepTimeModel | None = MODEL
    totals: dict[str, float] = field(default_factory=dict)
    ttft: list[float] = field(default_factory=lambda: [0.0] * len(BOUNDS))
    itl: list[float] = field(default_factory=lambda: [0.0] * len(BOUNDS))
    shadow: ShadowQueues = field(default_factory=ShadowQueues)
    at_once: float = field(init=False)  # requests that it runs at once, whatever the bounds of the operator
    clock: float = 0.0
    due: float = 0.0  # of the next request, the part that has arrived

    def __post_init__(self) -> None:
        self.at_once = self.limit

    @property
    def running(self) -> float:
        return min(self.inside, self.limit)

    @property
    def occupancy(self) -> float:
        return min(1.0, self.running * math.ceil(WORK.context / BLOCK) / self.kv_blocks)

    def pass_time(self, rate: float, seconds: float) -> None:
        arrived = rate * seconds
        self._observe_arrivals(rate, seconds)
        step = token_seconds(MODEL, WORK, self.running)
        done = min(self.inside + arrived, throughput(MODEL, WORK, self.running) * seconds) if self.inside else 0.0
        wait = max(0.0, self.inside - self.limit) / max(throughput(MODEL, WORK, self.running), 1e-9)
        room = self.limit + self.queue - self.inside
        refused = max(0.0, arrived - done - room)
        self.inside = max(0.0, self.inside + arrived - refused - done)  # rounded, an empty one may hold less than none
        first = wait + 1.5 * step
        good = first <= TTFT and step <= ITL
        for name, amount in (
            ("arrived_total", arrived),
            ("rejected_total", refused),
            ("finished_total", done),
            ("slo_met_total" if good else "slo_missed_total", done),
            ("prompt_tokens_total", (arrived - refused) * WORK.uncached),
            ("cached_prompt_tokens_total", (arrived - refused) * WORK.uncached * self.saved),
            ("generated_tokens_total", self.running * seconds / step),
            ("kv_block_seconds_total", self.occupancy * self.kv_blocks * seconds),
        ):
            self.totals[name] = self.totals.get(name, 0.0) + amount
        for buckets, value, amount in ((self.ttft, first, done), (self.itl, step, self.running * seconds / step)):
            for index, bound in enumerate(BOUNDS):
                buckets[index] += amount if value <= bound else 0.0

    def _observe_arrivals(self, rate: float, seconds: float) -> None:
        """Give the shadow queues the requests that arrive in the next `seconds`, evenly spaced."""
        begun, before = self.clock, self.due
        self.clock += seconds
        self.due += rate * seconds
        arriving = math.floor(self.due + 1e-9)
        self.due -= arriving
        model, engine = self.model, self._shadow_engine()
        for place in range(1, arriving + 1):
            if model is None or engine is None:
                self.shadow.arrive_unjudged()
            else:
                self.shadow.arrive(begun + (place - before) / rate, prefill_seconds(model, WORK), engine)

    def _shadow_engine(self) -> ShadowEngine | None:
        """What its shadow queues assume of it; None while the step times are not known."""
        if self.model is None or self.model.steps < PERFMODEL.limit.least_model_steps:
            return None
        longest = PERFMODEL.shadow.longest_step * TTFT
        limits = EngineLimits(ITL, TTFT, 2048, self.kv_blocks * BLOCK, self.at_once, longest)
        return shadow_engine(self.model, WORK.context, WORK.output, limits)

    def sample(self) -> EngineSample:
        total = self.totals.get
        return EngineSample(
            running=round(self.running),
            waiting=round(self.inside - self.running),
            tokens_in_flight=self.inside * WORK.context,
            kv_occupancy=self.occupancy,
            kv_blocks=self.kv_blocks,
            block_size=BLOCK,
            concurrency=self.limit,
            concurrency_min=2,
            concurrency_max=64,
            queue_limit=self.queue,
            arrived_total=total("arrived_total", 0.0),
            finished_total=total("finished_total", 0.0),
            rejected_total=total("rejected_total", 0.0),
            slo_met_total=total("slo_met_total", 0.0),
            slo_missed_total=total("slo_missed_total", 0.0),
            prompt_tokens_total=total("prompt_tokens_total", 0.0),
            cached_prompt_tokens_total=total("cached_prompt_tokens_total", 0.0),
            generated_tokens_total=total("generated_tokens_total", 0.0),
            kv_block_seconds_total=total("kv_block_seconds_total", 0.0),
            ttft=Histogram(BOUNDS, tuple(self.ttft), 0.0),
            itl=Histogram(BOUNDS, tuple(self.itl), 0.0),
            step_model=self.model,
            shadow=ShadowTotals(float(self.shadow.arrived), float(self.shadow.unreachable), tuple(self.shadow.late)),
        )


@dataclass
class Story:
    """A deployment over minutes: `minute by minute` calls of decide(), acted upon after a cold start."""

    spec: LLMDeploymentSpec = field(default_factory=spec)
    interval: float = 5.0
    cold_start: float = 20.0
    now: float = 1_000.0
    replicas: int | None = 1
    state: AutoscalerState = field(default_factory=AutoscalerState)
    engines: dict[str, Engine] = field(default_factory=dict)
    loading: dict[str, float] = field(default_factory=dict)  # pod → when it was created
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)  # pods that do not answer scrapes
    heard: dict[str, tuple[EngineSample, float]] = field(default_factory=dict)
    held: int | None = None  # requests held by a gateway; None: no gateway holds requests
    wall: float | None = None  # seconds since 1970 at `now` 0
    started: dict[str, ColdStart] = field(default_factory=dict)  # how long each pod took
    _made: int = 0

    def __post_init__(self) -> None:
        for _ in range(self.replicas or 0):
            self.engines[self._name()] = Engine()

    def _name(self) -> str:
        self._made += 1
        return f"chat-{self._made}"

    def run(self, seconds: float, rate: float) -> list[Decision]:
        """Pass time under a load; every interval scrape, decide and act. The decisions of this stretch."""
        begun = len(self.decisions)
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.serve(rate, self.interval)
            if self.held is not None:
                self.held = 0 if self.engines else self.held + round(rate * self.interval)
            self.now += self.interval
            self._load()
            self._act(self.decide())
        return [decision for _, decision in self.decisions[begun:]]

    def serve(self, rate: float, seconds: float, pieces: int = 10) -> None:
        """The load, split evenly; in pieces, because what runs changes while time passes."""
        for _ in range(pieces):
            for engine in self.engines.values():
                engine.pass_time(rate / len(self.engines), seconds / pieces)

    def decide(self) -> Decision:
        for name, engine in self.engines.items():
            if name not in self.silent:
                self.heard[name] = (engine.sample(), self.now)
        decision, self.state = decide(self.spec, self.observed(), self.state, self.now)
        self.decisions.append((self.now, decision))
        return decision

    def observed(self) -> Observed:
        views = [self._view(name, "ready") for name in self.engines]
        views += [PodView(name, "loading", since) for name, since in self.loading.items()]
        wall = None if self.wall is None else self.wall + self.now
        return Observed(pods=tuple(views), replicas=self.replicas, held=self.held, wall=wall)

    def _view(self, name: str, phase: PodPhase) -> PodView:
        sample, at = self.heard.get(name, (None, None))
        return PodView(name, phase, 0.0, sample, at, cold_start=self.started.get(name))

    def _load(self) -> None:
        for name, since in list(self.loading.items()):
            if self.now - since >= self.cold_start:
                del self.loading[name]
                took = self.now - since
                self.started[name] = ColdStart(1.0, 4.0, took - 6.0, 1.0, took)
                self.engines[name] = Engine()

    def _act(self, decision: Decision) -> None:
        for name, bounds in decision.bounds:
            engine = self.engines[name]
            engine.limit, engine.queue = min(13, bounds.concurrency_max), bounds.max_queue
        if decision.replicas is None:
            return
        for name in decision.scale_in_candidates:
            self.engines.pop(name, None)
            self.loading.pop(name, None)
        while len(self.engines) + len(self.loading) < decision.replicas:
            self.loading[self._name()] = self.now
        self.replicas = decision.replicas

    def sentences(self, dial: str = "replicas") -> list[str]:
        """All sentences about one dial so far."""
        return [reason.sentence for _, d in self.decisions for reason in d.reasons if reason.dial == dial]
