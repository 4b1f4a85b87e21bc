"""The simulator against a recorded run of the real engine: from the same arrivals and step times come the same plans.

An arrival counts from when the engine heard of it, which is between two steps or while it waits for one.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from sluice_engine.core.engine import EngineLoop
from sluice_engine.scheduler import Plan
from sluice_engine.scheduler.policies import POLICIES
from sluice_perfmodel.step_time import StepTimeModel, StepWork
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.engine.exact import SimEngine
from sluice_sim.engine.offered_request import OfferedRequest
from sluice_sim.engine.step_times import Recorded
from sluice_sim.traces import Arrival
from tests.bench.fidelity.timeline import Timeline, serve_all
from tests.engine.oracle import options

REQUESTS = 80


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class Uneven(StepTimeModel):
    """A pace by which a step takes up to 40 % longer than the terms say, and now and then five times as long."""

    dice: random.Random = field(default_factory=lambda: random.Random(2))

    def predict(self, work: StepWork) -> float:
        return super().predict(work) * (5.0 if self.dice.random() < 0.02 else self.dice.uniform(1.0, 1.4))


def arrivals(seed: int) -> list[Arrival]:
    """Bursts and lulls, long and short prompts, two tenants and three priorities."""
    draw, at, made = random.Random(seed), 0.0, []
    for number in range(REQUESTS):
        at += draw.expovariate(40.0 if number // 20 % 2 else 6.0) + (3.0 if number == REQUESTS // 2 else 0.0)
        one = Arrival(at, draw.choice((5, 40, 150, 300)), draw.randint(2, 100))
        made.append(replace(one, priority=draw.choice((-5, 0, 5)), tenant=draw.choice("ab")))
    return made


def shape(plan: Plan) -> object:
    """Everything but the tokens themselves: who, where, how much, which blocks, what is copied, which one is preempted."""
    rows = [row._replace(tokens=(len(row.tokens),)) for row in plan.rows]
    return replace(plan, rows=tuple(rows), joins=()), [join.request_id for join in plan.joins]


def watched(engine: EngineLoop, seen: list[object]) -> None:
    def seeing(planned: Callable[..., Plan | None]) -> Callable[..., Plan | None]:
        def plan(*arguments: object) -> Plan | None:
            made = planned(*arguments)
            if made is not None:
                seen.append(shape(made))
            return made

        return plan

    engine.scheduler.plan = seeing(engine.scheduler.plan)  # type: ignore[method-assign]
    engine.scheduler.plan_ahead = seeing(engine.scheduler.plan_ahead)  # type: ignore[method-assign]


@pytest.mark.parametrize("binding", ["latency", "memory"])
@pytest.mark.parametrize(("policy", "overlap"), [("fcfs", False), *((policy, True) for policy in POLICIES)])
def test_a_recorded_run_replayed_in_the_simulator_has_the_same_plans(
    tiny_llama: Path, policy: str, binding: str, overlap: bool
) -> None:
    seen: list[object] = []
    clock, draw, listed = Clock(), random.Random(2), arrivals(3)
    pace = Uneven(base=0.01, prefill_token=1e-4, prefill_context=1e-7, sequence=5e-4, kv_token=1e-6)
    engine = EngineLoop(
        options(tiny_llama, pace=pace, policy=policy, speculation="off", overlap=overlap, kv_size=360 << 10, max_num_seqs=24,
                concurrency_max=24, max_batched_tokens=128, itl_target=0.03, ttft_target=0.5,
                concurrency_min=1 if binding == "latency" else 24),
        clock=clock,
        sleep=clock.wait,
    )  # fmt: skip
    watched(engine, seen)
    prompts = [tuple(draw.randrange(2, 128) for _ in range(one.prompt)) for one in listed]
    timeline = Timeline(listed, prompts, clock, clock.wait, begun=clock.now)
    serve_all(engine, timeline)

    replayed: list[object] = []
    sim = SimEngine(
        Recorded(timeline.steps),
        engine.scheduler.config,
        engine.limits.base,
        0.0,
        overlap=overlap,
        on_plan=lambda plan: replayed.append(shape(plan)),
    )
    for number, (at, one) in enumerate(zip(timeline.taken, listed, strict=True)):
        sim.run_until(at)
        sim.submit(
            OfferedRequest(number, replace(one, max_tokens=one.output), RequestRecord(one.at, one.prompt, one.output))
        )
    sim.run_until(clock.now)
    assert len(seen) > 200
    assert replayed == seen
    assert engine.limits.concurrency == sim.limits.concurrency
    assert (engine.limits.concurrency < 24) == (binding == "latency")
    assert engine.scheduler.preemptions > 0 or binding == "latency"
