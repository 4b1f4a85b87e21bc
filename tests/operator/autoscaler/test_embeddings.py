"""A deployment of embeddings or scores: no token is generated, and the replay sizes the fleet all the same."""

import math
from dataclasses import replace

import pytest

from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision, Observed, PodView, ShadowTotals
from sluice_perfmodel.shadow_queues import EngineLimits, ShadowQueues, shadow_engine
from sluice_perfmodel.step_time import StepTimeModel
from sluice_perfmodel.workload import Work, prefill_seconds, throughput
from tests.operator.autoscaler.fleet import Engine, spec

TEXT = 100  # tokens
MODEL = StepTimeModel(base=0.02, prefill_token=0.0005, steps=1000)
AT_ONCE = 2048 // TEXT  # texts that one step has tokens for
FLAT_OUT = throughput(MODEL, Work(1, TEXT), AT_ONCE)  # 19.6 per second


def served(rate: float, text: int = TEXT, seconds: float = 150.0) -> Decision:
    """The decision for one replica at this rate, texts per second, with every target met so far."""
    asked = spec(scaling={"maxReplicas": 16}, slo={"itlMilliseconds": 10})
    memory, now, replicas = AutoscalerState(), 0.0, 1
    limits = EngineLimits(itl=0.01, ttft=2.0, batch_tokens=2048, kv_tokens=32_000, sequences=AT_ONCE, longest_step=0.5)
    shadow, work = ShadowQueues(), Work(1, text)
    while True:
        now += 5.0
        total = rate * now
        while shadow.arrived < total - 1e-9:
            engine = shadow_engine(MODEL, work.context, work.output, limits)
            shadow.arrive((shadow.arrived + 1) / rate, prefill_seconds(MODEL, work), engine)
        sample = replace(
            Engine().sample(),
            running=min(rate, AT_ONCE),
            arrived_total=total,
            finished_total=total,
            slo_met_total=total,
            prompt_tokens_total=text * total,
            step_model=MODEL,
            shadow=ShadowTotals(shadow.arrived, shadow.unreachable, tuple(shadow.late)),
        )
        observed = Observed((PodView("texts-1", "ready", -100.0, sample, now),), replicas=replicas)
        decision, memory = decide(asked, observed, memory, now)
        if now >= seconds:
            return decision


@pytest.mark.parametrize("load", [0.3, 1.5, 3.0, 6.0])
def test_the_count_follows_the_request_lengths(load: float) -> None:
    desired = served(load * FLAT_OUT).desired
    assert math.ceil(load) <= desired <= math.ceil(1.5 * load)


def test_longer_requests_need_more_replicas_although_no_target_was_missed() -> None:
    assert served(1.5 * FLAT_OUT, text=3 * TEXT).desired > served(1.5 * FLAT_OUT).desired


def test_the_queue_holds_what_is_served_within_its_time() -> None:
    bounds = dict(served(0.5 * FLAT_OUT).bounds)["texts-1"]
    assert 0.5 * 10 * FLAT_OUT <= bounds.max_queue <= 10 * FLAT_OUT + 1  # maxQueueSeconds is 10
