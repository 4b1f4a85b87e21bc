"""Operator and engine say the same: what the engine publishes the operator reads, what the operator sends is taken."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sluice import contract
from sluice_engine import messages
from sluice_engine.config import engine_options
from sluice_engine.limits import at_start
from sluice_engine.server.api.limits import parse_patch
from sluice_engine.server.metrics import EngineMetrics
from sluice_operator.autoscaler.observation import take_in
from sluice_operator.autoscaler.signals.windows import window_sums
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Bounds, Observed, PodView, ShadowTotals
from sluice_operator.engines.client import limits_body
from sluice_operator.engines.exposition import parse
from sluice_operator.engines.text_format import (
    MAX_BYTES,
    MAX_LABELS,
    MAX_LINE_CHARACTERS,
    MAX_LINES,
    MAX_SERIES,
    Sample,
    read_samples,
)
from sluice_perfmodel.shadow_queues import LOADS
from tests.operator.autoscaler.fleet import spec

OPTIONS = engine_options(model="/m", served_name="chat", concurrency_min=2, concurrency_max=32, max_queue=64)
BOUNDS = Bounds(
    concurrency_min=3, concurrency_max=17, max_queue=40, kv_watermark=0.8, itl_target=0.05, ttft_target=2.0, ttl=30.0
)


def take(metrics: EngineMetrics, step: messages.StepReport, now: float) -> None:
    """As the HTTP process does with each step."""
    metrics.on_step(step, now)
    metrics.on_report(step)


def report(**changes: object) -> messages.StepReport:
    base: dict[str, object] = {
        "ended_at": 11.0, "seconds": 0.02, "prefill_tokens": 0, "prefill_context": 0.0, "sequences": 3, "kv_tokens": 300,
        "generated_tokens": 3, "prompt_tokens": 90, "cached_prompt_tokens": 30, "preemptions": 1, "running": 3, "waiting": 2,
        "tokens_in_flight": 300, "blocks_held": 25, "blocks_cached": 5, "blocks_free": 70, "limits": at_start(OPTIONS.limits),
        "model": (0.01, 0.001, 0.0, 0.002, 0.0001), "model_error": 0.05, "model_steps": 400,
    }  # fmt: skip
    return messages.StepReport(**(base | changes))  # type: ignore[arg-type]


def serving_engine() -> EngineMetrics:
    metrics = EngineMetrics(OPTIONS, clock=lambda: 10.0)
    metrics.on_ready(
        messages.Ready(
            dtype="float32",
            device="cpu",
            block_size=16,
            num_blocks=100,
            max_model_length=512,
            vocab_size=100,
            paced=False,
            load_seconds={"load": 2.5, "warm": 0.5},
        )
    )
    metrics.started(["a"], 9.0, 30)
    take(metrics, report(deltas=(messages.Delta("a", (1,), cached_tokens=0, queue_seconds=0.1),)), 11.0)
    take(metrics, report(ended_at=11.1, deltas=(messages.Delta("a", (2,), finish="stop"),)), 11.1)
    metrics.ended("a", "stop")
    return metrics


def test_the_operator_reads_an_engines_text_as_prometheus_client_does() -> None:
    text = serving_engine().render().decode()
    families = text_string_to_metric_families(text)
    expected = [
        Sample(each.name, tuple(sorted(each.labels.items())), each.value) for one in families for each in one.samples
    ]
    assert list(read_samples(text, (contract.PREFIX,))) == [
        one for one in expected if one.name.startswith(contract.PREFIX)
    ]
    assert len(expected) > 200


def test_an_engine_stays_five_times_below_every_bound_of_the_operator() -> None:
    text = serving_engine().render().decode()
    samples = list(read_samples(text, (contract.PREFIX,)))
    for used, most in (
        (len(text), MAX_BYTES),
        (text.count("\n"), MAX_LINES),
        (max(map(len, text.split("\n"))), MAX_LINE_CHARACTERS),
        (max(len(sample.labels) for sample in samples), MAX_LABELS),
        (len(samples), 5 * MAX_SERIES // 2),  # most of these are for dashboards, and not read
    ):
        assert 0 < 5 * used <= most


def test_what_the_engine_publishes_is_a_sample() -> None:
    sample = parse(serving_engine().render().decode())
    assert (sample.running, sample.waiting, sample.tokens_in_flight) == (3, 2, 300)
    assert (sample.kv_occupancy, sample.kv_blocks, sample.block_size) == (0.25, 100, 16)
    assert (sample.concurrency_min, sample.concurrency_max, sample.queue_limit) == (2, 32, 64)
    assert (sample.arrived_total, sample.finished_total) == (1, 1)
    assert sample.step_model is not None and sample.step_model.sequence == 0.002 and sample.step_model.steps == 400
    assert dict(sample.load_seconds)["warm"] == 0.5


def test_the_operator_reads_what_the_shadow_queues_counted() -> None:
    metrics = serving_engine()
    late = tuple(0.5 * index for index in range(len(LOADS)))
    take(metrics, report(shadow=messages.ShadowCounts(7, 2, late)), 12.0)
    assert parse(metrics.render().decode()).shadow == ShadowTotals(7.0, 2.0, late)


def test_a_loading_engine_is_scraped_and_reports_its_rejections() -> None:
    metrics = EngineMetrics(OPTIONS, clock=lambda: 10.0)
    metrics.rejected_unsubmitted("loading")
    sample = parse(metrics.render().decode())
    assert (sample.kv_blocks, sample.block_size, sample.step_model) == (0, 0, None)
    assert (sample.arrived_total, sample.rejected_total) == (1, 1)


def test_a_request_rejected_by_one_replica_and_served_by_the_next_counts_as_served() -> None:
    """Of what came first to one of two replicas: an answer, one of three answers, one that its client left, one that failed,
    one that both refused, and two that the first refused (one of them after it had waited) and the second served."""
    one, two = serving_engine(), serving_engine()
    before = [parse(each.render().decode()) for each in (one, two)]

    def answer(engine: EngineMetrics, *names: str, again: bool = False) -> None:
        engine.started(names, 11.9, 30, offered_before=again)
        for name in names:
            take(engine, report(ended_at=12.0, deltas=(messages.Delta(name, (1,), finish="length"),)), 12.0)

    answer(one, "a")
    answer(one, "b0", "b1", "b2")
    one.started(["c"], 11.9, 30)
    one.ended("c", "abort")
    one.started(["d"], 11.9, 30)
    one.ended("d", "error")
    one.rejected_unsubmitted("queue_full")
    two.rejected_unsubmitted("queue_full", offered_before=True)
    one.rejected_unsubmitted("queue_full")
    answer(two, "f", again=True)
    one.started(["g"], 11.9, 30)
    one.rejected("g", "queue_full")
    answer(two, "g", again=True)
    after = [parse(each.render().decode()) for each in (one, two)]
    state = AutoscalerState()
    for at, samples in ((10.0, before), (20.0, after)):
        pods = tuple(PodView(name, "ready", 0.0, sample, at) for name, sample in zip("xy", samples, strict=True))
        _, state = take_in(spec(), Observed(pods=pods, replicas=2), state, at)
    outcome = window_sums(state.signals.window, 20.0, 30.0).outcome
    assert (outcome.met, outcome.late, outcome.rejected) == (4, 1, 1)
    assert sum(sample.arrived_total for sample in after) - sum(sample.arrived_total for sample in before) == 7


def test_histograms_arrive_with_the_contracts_buckets() -> None:
    sample = parse(serving_engine().render().decode())
    assert sample.ttft.bounds[:-1] == contract.LATENCY_BUCKETS
    assert sample.ttft.count == 1
    assert sample.itl.count == 1
    assert sample.itl.sum == pytest.approx(0.1)


def test_an_engine_without_a_fit_has_no_step_model() -> None:
    metrics = serving_engine()
    take(metrics, report(model_steps=0), 12.0)
    assert parse(metrics.render().decode()).step_model is None


def test_the_limits_that_the_operator_sends_are_parsed_unchanged() -> None:
    body = limits_body(BOUNDS, 0.0)
    assert set(body) <= set(contract.LIMIT_FIELDS)
    patch = parse_patch(body, OPTIONS.limits, 256, 2048)
    assert patch.ttl == 30.0
    assert patch.changes == {
        "concurrency_min": 3, "concurrency_max": 17, "max_queue": 40, "kv_watermark": 0.8,
        "itl_target": 0.05, "ttft_target": 2.0,
    }  # fmt: skip


def test_a_queue_limit_of_zero_is_applied() -> None:
    body = limits_body(replace(BOUNDS, max_queue=0), 0.0)
    assert parse_patch(body, OPTIONS.limits, 256, 2048).changes["max_queue"] == 0
