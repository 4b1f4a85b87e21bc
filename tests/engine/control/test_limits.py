"""LimitController move while serving: bounds with a TTL, the fast loop inside them, and what it measures."""

from dataclasses import replace

import pytest

from sluice_engine.control.limit_controller import LimitController, predicted_wait
from sluice_engine.control.load_window import LoadWindow
from sluice_engine.core.step_report import StepReporter
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_perfmodel.concurrency_limit import EngineLoad
from sluice_perfmodel.step_time import StepTimeModel, StepWork

STARTED = Limits(concurrency_min=2, concurrency_max=32, itl_target=0.05)
SLOW = StepTimeModel(base=0.01, sequence=0.004, steps=1000)  # ten sequences make a step of 50 ms


def load(running: int = 0, waiting: int = 0, itl: float | None = None) -> EngineLoad:
    return EngineLoad(running, waiting, 100.0, 0.0, 0.0, itl, 100_000, running * 100, 10.0)


def test_a_patch_changes_limits_until_its_ttl_ends() -> None:
    limits = LimitController(STARTED)
    limits.patch({"concurrency_max": 4, "itl_target": 0.02}, 10.0, now=100.0)
    assert (limits.concurrency, limits.current.itl_target, limits.current.max_queue) == (4, 0.02, 1024)
    assert limits.ttl(104.0) == 6.0
    assert not limits.expire(109.9)
    assert limits.current.concurrency_max == 4
    assert limits.expire(110.0)
    assert limits.current == STARTED and limits.ttl(110.0) is None


def test_a_second_patch_keeps_what_it_does_not_name_and_renews_the_ttl() -> None:
    limits = LimitController(STARTED)
    limits.patch({"concurrency_max": 4}, 10.0, now=0.0)
    limits.patch({"kv_watermark": 0.5}, 10.0, now=5.0)
    assert (limits.current.concurrency_max, limits.current.kv_watermark) == (4, 0.5)
    assert not limits.expire(14.0) and limits.expire(15.0)


def test_when_a_patch_ends_the_newest_targets_of_the_spec_are_in_force() -> None:
    limits = LimitController(STARTED)
    spec = replace(STARTED, concurrency_min=4, concurrency_max=64, itl_target=0.2, ttft_target=8.0)
    limits.set_base(spec)
    assert limits.current == spec
    limits.patch({"concurrency_max": 8, "itl_target": 0.1}, 10.0, now=0.0)
    newer = replace(spec, concurrency_min=6, itl_target=0.3, ttft_target=9.0)
    limits.set_base(newer)  # what the patch names stays covered, the rest moves at once
    assert limits.current == replace(newer, concurrency_max=8, itl_target=0.1)
    assert limits.expire(10.0)
    assert limits.current == newer


def test_a_narrower_range_moves_the_concurrency_into_it() -> None:
    limits = LimitController(STARTED)
    limits.set_base(replace(STARTED, concurrency_max=5))
    assert limits.concurrency == 5
    limits.set_base(replace(STARTED, concurrency_min=9))
    assert limits.concurrency == 9


def test_a_minimum_above_the_maximum_is_lowered_to_it() -> None:
    limits = LimitController(STARTED)
    limits.patch({"concurrency_max": 1}, 10.0, now=0.0)
    assert (limits.current.concurrency_min, limits.current.concurrency_max) == (1, 1)


def test_a_raised_minimum_raises_the_concurrency() -> None:
    limits = LimitController(STARTED)
    limits.patch({"concurrency_max": 3}, 10.0, now=0.0)
    limits.patch({"concurrency_min": 8, "concurrency_max": 16}, 10.0, now=1.0)
    assert limits.concurrency == 8


def test_the_published_step_model_is_slower_than_the_fit_where_minutes_of_measurements_exceed_it() -> None:
    limits = LimitController(STARTED)
    reporter = StepReporter(Scheduler(SchedulerConfig(num_blocks=16, max_model_length=64), limits), limits)

    def reported() -> tuple[float, ...]:
        return reporter.report(None, (), 0.0, 0.0, SLOW).model

    assert reported()[0] == SLOW.base
    for second in range(600):
        limits.tick(float(second), SLOW, load(running=4)._replace(mean_itl=1.5 * 0.026))
    assert reported()[0] == pytest.approx(1.5 * SLOW.base, rel=0.02)


def test_the_fast_loop_runs_once_a_second() -> None:
    limits = LimitController(STARTED)
    assert limits.due(0.0)
    limits.tick(0.0, None, load())
    assert not limits.due(0.9) and limits.due(1.0)


def test_without_a_usable_model_the_maximum_is_in_force() -> None:
    limits = LimitController(STARTED)
    limits.tick(0.0, StepTimeModel(base=1.0, steps=1), load())
    assert (limits.concurrency, limits.reason) == (32, "cold")


def test_the_fast_loop_finds_the_concurrency_that_meets_the_target() -> None:
    limits = LimitController(STARTED)
    moved = limits.tick(0.0, SLOW, load())
    assert moved and limits.reason == "itl"
    assert 8 <= limits.concurrency <= 10
    for second in range(1, 10):
        limits.tick(float(second), SLOW, load())
    assert not limits.tick(20.0, SLOW, load())  # nothing new: it rests


def test_the_predicted_wait_is_littles_law() -> None:
    assert predicted_wait(waiting=0, running=3, limit=4, residence=2.0) == 0.0
    assert predicted_wait(waiting=0, running=4, limit=4, residence=2.0) == 0.5
    assert predicted_wait(waiting=7, running=4, limit=4, residence=2.0) == 4.0


def test_the_window_measures_the_last_seconds_only() -> None:
    scheduler = Scheduler(SchedulerConfig(num_blocks=64, max_model_length=512), LimitController(STARTED))
    window = LoadWindow(seconds=5.0)
    window.record(StepWork(prefill_tokens=1000, prefill_context=5000.0), [None, 9.0], now=0.0)
    for now in range(1, 11):
        window.record(StepWork(prefill_tokens=10, prefill_context=50.0), [0.02] * 9 + [0.2], now=float(now))
    measured = window.load(scheduler.occupancy, now=10.0)
    assert measured.prefill_rate == pytest.approx(60 / 5)
    assert measured.prefill_context_rate == pytest.approx(300 / 5)
    assert measured.observed_itl == 0.2
    assert measured.mean_itl == pytest.approx(0.038)
    assert window.load(scheduler.occupancy, now=30.0).observed_itl is None


def test_the_window_reports_held_kv_and_expected_growth_of_running_requests() -> None:
    scheduler = Scheduler(SchedulerConfig(num_blocks=64, max_model_length=512), LimitController(STARTED))
    scheduler.submit(Request("a", list(range(40)), max_tokens=20, arrived_at=0.0))
    scheduler.submit(Request("b", list(range(100, 120)), max_tokens=20, arrived_at=0.0))
    plan = scheduler.plan(0.0)
    assert plan is not None
    scheduler.settle(plan, [7, 7], 0.0)
    scheduler.state.mean_output = 11.0
    measured = LoadWindow().load(scheduler.occupancy, now=0.0)
    assert (measured.running, measured.mean_context, measured.kv_tokens_held) == (2, 30.0, 5 * 16)
    assert measured.growth_per_sequence == 10.0
