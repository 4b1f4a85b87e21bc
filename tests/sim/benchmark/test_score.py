"""The arithmetic of the score on examples computed by hand."""

import pytest

from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.results import score
from sluice_sim.results.run import PodLifetime
from sluice_sim.results.score import Point

MODEL = StepTimeModel(base=0.02, prefill_token=0.001, prefill_context=1e-6, sequence=0.002, kv_token=1e-5)


def record(at: float, good: bool, prompt: int = 10, output: int = 2) -> RequestRecord:
    return RequestRecord(at, prompt, output, good=good)


def test_good_is_counted_over_everything_that_was_offered() -> None:
    assert score.good_share([record(0, True), record(1, False), record(2, True), record(3, True)]) == 0.75
    assert score.good_share([]) == 1.0


def test_a_request_is_good_only_when_it_ended_within_both_targets() -> None:
    record = RequestRecord(10.0, 5, 11, first_at=11.0, ended_at=12.0)
    assert (record.ttft, record.itl) == (1.0, 0.1)
    assert record.apply_slo(1.0, 0.1) and not record.apply_slo(0.9, 0.1) and not record.apply_slo(1.0, 0.09)
    assert RequestRecord(0.0, 5, 1, first_at=1.0, ended_at=1.0).apply_slo(
        1.0, 0.01
    )  # one token has no time between tokens
    assert RequestRecord(0.0, 5, 5, first_at=1.0).itl is None


def test_the_worst_five_minutes_are_found_and_a_short_last_piece_counts_with_the_one_before() -> None:
    whole = [record(at, good=not 300 <= at < 450) for at in range(0, 660, 10)]
    assert score.worst_share(whole) == pytest.approx(21 / 36)  # 300 s to the end at 650 s
    assert score.worst_share([record(5, True)]) == 1.0


def test_gpu_hours_run_from_bind_to_release() -> None:
    assert score.gpu_hours([PodLifetime("a", 0, 3600), PodLifetime("b", 1800, 3600)], gpus=4) == 6.0


def test_actions_and_turns_are_counted_per_hour() -> None:
    wanted = [(0.0, 1), (10.0, 3), (20.0, 3), (30.0, 4), (40.0, 3), (50.0, 5)]
    assert score.moves(wanted) == [2, 1, -1, 2]
    assert score.actions_per_hour(wanted, 1800) == 8
    assert score.flips_per_hour(wanted, 1800) == 4
    assert score.flips_per_hour([(0.0, 1)], 1800) == 0


def test_the_cost_at_an_attainment_is_interpolated_between_adjacent_settings() -> None:
    points = [Point(1, 0.97, 10.0), Point(2, 0.98, 12.0), Point(3, 1.0, 16.0)]
    assert score.cost_at(points) == pytest.approx(14.0)
    assert score.cost_at([Point(1, 0.99, 9.0), Point(2, 0.999, 12.0)]) == 9.0
    assert score.cost_at(points[:2]) is None


def test_the_work_of_one_request_by_hand() -> None:
    """10 prompt tokens: 10 ms and 1e-6·10·5; two more tokens: a tenth of 20 ms, 2 ms and 11.5 cached tokens each."""
    expected = 0.01 + 5e-5 + 2 * (0.002 + 0.002 + 11.5e-5)
    assert score.request_seconds(MODEL, prompt=10, output=3, batch=10) == pytest.approx(expected)


def test_the_largest_batch_is_what_the_target_or_the_limit_allows() -> None:
    assert score.largest_batch(MODEL, itl=0.1, most=256) == 40
    assert score.largest_batch(MODEL, itl=0.1, most=8) == 8
    assert score.largest_batch(MODEL, itl=0.01, most=8) == 1
    assert score.largest_batch(StepTimeModel(base=0.01), itl=0.1, most=8) == 8


def test_the_bounds_take_the_cheapest_requests_first() -> None:
    records = [record(0, True, prompt) for prompt in (10, 20, 1000)]
    costs = [score.request_seconds(MODEL, prompt, 2, 40) for prompt in (10, 20, 1000)]
    assert score.least_engine_seconds(records, MODEL, 0.1, 256, share=0.66) == pytest.approx(sum(costs[:2]))


def test_a_steps_fixed_cost_is_shared_by_the_sequences_that_fit_in_memory() -> None:
    records = [record(0, True, prompt=999, output=3)]  # 1,000.5 tokens on the mean: half of a pool of 2,001
    own = score.request_seconds(MODEL, 999, 3, batch=10**9)
    assert score.least_engine_seconds(records, MODEL, 0.1, 256, pool=2001) == pytest.approx(own + 2 * 0.02 / 2)
    assert score.least_engine_seconds(records, MODEL, 0.1, 256) == pytest.approx(own + 2 * 0.02 / 40)
