"""The arithmetic of the long prompt's rows."""

import math

import pytest

from sluice_perfmodel.step_time import StepTimeModel, StepWork
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.engine.step_times import RecordedStep
from tests.bench.fidelity.timeline import Timeline
from tests.bench.longprompt.behind import AFTER, Case, found
from tests.bench.longprompt.behind import Found as Served
from tests.bench.longprompt.behind_report import rows
from tests.bench.longprompt.least import least_seconds
from tests.bench.longprompt.report import Found, p99


def test_the_least_prefill_time_is_whole_steps_of_the_target() -> None:
    model = StepTimeModel(base=0.010, prefill_token=0.001)
    # 10 tokens fit into 20 ms with the base; 95 tokens are nine full steps and one of 5
    assert least_seconds(model, 95, 0.020, sequences=4, kv_tokens=100) == pytest.approx(9 * 0.020 + 0.015)


def test_no_chunks_of_one_size_are_faster_within_the_target() -> None:
    model = StepTimeModel(0.004, 2e-5, 4e-9, 1e-4, 1e-7)
    target, prompt, sequences, kv = 0.02, 4096, 16, 4096
    least = least_seconds(model, prompt, target, sequences, kv)
    for size in (64, 128, 200, 256):
        seconds, computed, worst, cached = 0.0, 0, 0.0, kv
        while computed < prompt:
            chunk = min(size, prompt - computed)
            step = model.predict(StepWork(chunk, chunk * (computed + chunk / 2), sequences, cached))
            seconds, computed, worst, cached = seconds + step, computed + chunk, max(worst, step), cached + sequences
        assert worst > target or seconds >= least


def test_no_prompt_finishes_if_decoding_alone_takes_the_target() -> None:
    assert least_seconds(StepTimeModel(base=0.03, prefill_token=1e-5), 10, 0.02, 1, 1) == math.inf


def test_p99_and_medians_over_episodes() -> None:
    assert p99([float(n) for n in range(1, 101)]) == 99.0
    assert p99([3.0]) == 3.0
    episodes = [
        {"target": 0.02, "ttft": t, "least_ttft": 2.0, "steps": [{"at": -1.0, "gap": 9.0}, {"at": 1.0, "gap": g}]}
        for t, g in ((2.0, 0.01), (3.0, 0.02), (9.0, 0.09))
    ]
    found = Found("x", episodes)
    assert (found.p99_over_target, found.ttft_over_least) == (1.0, 1.5)


def test_a_case_has_the_first_tokens_of_long_and_short_prompts_and_the_streams_gaps_until_then() -> None:
    case = Case("fcfs", longs=1, streams=1, shorts=1)
    timeline = Timeline(case.arrivals, [], clock=lambda: 0.0, wait=lambda _: None, begun=100.0)
    for at, first in ((0.0, 0.5), (AFTER, AFTER + 9.0), (AFTER + 0.5, AFTER + 1.0)):
        timeline.records.append(RequestRecord(at, 1, 1, first_at=first))
    timeline.steps += [RecordedStep(100.0 + AFTER + at, 0.1) for at in (-0.5, 0.5, 0.6, 0.8, 9.0, 9.5)]
    result = found(case, timeline)
    assert (result.long, result.short) == ((9.0,), (0.5,))
    assert result.gaps == pytest.approx((0.1, 0.2, 8.2))


def test_long_prompts_are_compared_with_the_same_ones_without_short_prompts() -> None:
    alone = Served(Case("fcfs", 2, shorts=0), (10.0, 20.0), (), ())
    beside = Served(Case("edf", 2), (24.0, 12.0), (0.5, 0.9), ())
    short, long = rows({each.case: each for each in (alone, beside)})
    assert (short.value, short.met, long.value, long.met) == ("0.9 s", True, "1.2", True)
