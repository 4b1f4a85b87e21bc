"""The comparison in virtual time: its step model, and that it runs the real scheduler."""

import csv
import gzip
from dataclasses import replace

import pytest

from sluice_perfmodel.step_time import StepWork
from tests.bench.scheduling.goodput import OURS, fixed
from tests.bench.scheduling.virtual import PROFILE, arrivals, run, step_model

MODEL = step_model()


def test_the_step_model_is_that_of_the_profile() -> None:
    with gzip.open(PROFILE, "rt") as lines:
        rows = [row for row in csv.DictReader(lines) if row["token_size"] == "128"]
    long = next(row for row in rows if row["prompt_size"] == "4096")
    assert MODEL.predict(StepWork(4096, 4096 * 2048)) == pytest.approx(float(long["prompt_time"]), rel=0.1)
    many = next(row for row in rows if row["batch_size"] == "32")
    decode = MODEL.predict(StepWork(sequences=32, kv_tokens=32 * 576))
    assert decode == pytest.approx(float(many["token_time"]) / 128, rel=0.1)


def test_every_request_ends_and_the_same_seed_gives_the_same_result() -> None:
    coming = arrivals(120, 4.0, seed=1)
    first = run(OURS, MODEL, coming)
    assert first.finished + first.refused == first.requests == 120
    assert first == run(OURS, MODEL, coming)


def test_under_overload_deadlines_and_latency_driven_chunks_keep_goodput() -> None:
    coming = arrivals(200, 6.0, seed=2)
    ours, plain = run(OURS, MODEL, coming), run(fixed(512), MODEL, coming)
    assert ours.goodput > 1.3 * plain.goodput
    assert ours.missed_itl == 0 and plain.missed_itl > 20


def test_predicted_admission_preempts_a_fifth_as_often_at_equal_throughput() -> None:
    small = replace(fixed(2048), blocks=800)
    coming = arrivals(600, 3.0, seed=2)
    optimistic, predicted = run(small, MODEL, coming), run(replace(small, predicted_admission=True), MODEL, coming)
    assert optimistic.preempted >= 0.1 * optimistic.requests
    assert predicted.preemptions <= optimistic.preemptions / 5
    assert predicted.tokens_per_second == pytest.approx(optimistic.tokens_per_second, rel=0.03)
