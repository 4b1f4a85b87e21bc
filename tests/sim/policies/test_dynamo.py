"""Dynamo's planner: its forms from its sources; they publish no numbers, so the examples are worked here."""

import math

import pytest

from sluice_sim.policies.dynamo.kalman import Trend, observe
from sluice_sim.policies.dynamo.load import DYNAMO_LOAD, Engine, Work, step
from sluice_sim.policies.dynamo.model import Limits, Regression, best_rate, regression, ttft
from sluice_sim.policies.dynamo.throughput import DYNAMO_THROUGHPUT
from sluice_sim.policies.metrics.increase import Traffic
from tests.operator.autoscaler.fleet import MODEL, spec
from tests.sim.policies.pods import fleet, sample, served

WIDE = spec(scaling={"maxReplicas": 50})
BY = Regression(base=0.02, prompt_token=1e-4, cached_token=1e-6)
LIMITS = Limits(batched_tokens=2048, sequences=256, kv_tokens=500_000)


def test_own_example_a_steady_load_is_forecast_as_itself_and_a_ramp_is_continued() -> None:
    trend = Trend()
    for _ in range(20):
        trend = observe(trend, 500.0)
    assert trend.level == pytest.approx(500.0)
    for index in range(60):
        trend = observe(trend, 500.0 + 20.0 * index)
    assert trend.level == pytest.approx(500.0 + 20.0 * 60, abs=5.0)
    assert trend.slope == pytest.approx(20.0, abs=1.0)


def test_own_example_the_second_forecast_by_hand() -> None:
    """First covariance 1000·I, q = 1 and 0.1, r = 10: before the second value Var = 2001, gain 2001/2011 on the level
    and 1000/2011 on the slope."""
    trend = observe(observe(Trend(), 100.0), 120.0)
    level, slope = 100 + 20 * 2001 / 2011, 20 * 1000 / 2011
    assert trend.slope == pytest.approx(slope)
    assert trend.level == pytest.approx(level + slope)


def test_own_example_leading_zeros_are_skipped_and_non_finite_values_count_as_zero() -> None:
    """ai-dynamo/dynamo, planner/core/load/predictors.py, add_data_point: leading zeros are skipped, NaN and inf are
    zero load."""
    trend = observe(Trend(), 0.0)
    assert not trend.started
    assert observe(observe(trend, 50.0), math.nan) == observe(observe(trend, 50.0), 0.0)


def test_own_example_ttft_is_the_prompts_chunks_with_concurrent_decodes() -> None:
    whole, rest = 0.02 + 0.2048 + 0.01, 0.02 + 0.0952 + 0.01
    assert ttft(BY, 2048 + 952, 10_000, 2048) == pytest.approx(whole + rest)
    assert ttft(BY, 0, 10_000, 2048) == 0.0


def test_own_example_the_best_rate_is_the_largest_batch_within_the_sla() -> None:
    """1000 in, 200 out, 50 ms: an iteration of n takes 20 + n·(0.5 + 1.1) ms, so n = 18 and 18 / (200 · 48.8 ms)."""
    mean = Traffic(rate=1.0, prompt=1000, output=200, hit=0.0)
    assert best_rate(BY, mean, LIMITS, 10.0, 0.05) == pytest.approx(18 / (200 * 0.0488))


def test_own_example_a_batch_is_bounded_by_the_prefill_that_replaces_it() -> None:
    """ai-dynamo/dynamo, perf_model/agg.py: x ≤ osl·tokens / (isl + osl), and KV tokens / (isl + osl/2), and
    sequences."""
    mean = Traffic(rate=1.0, prompt=1848, output=200, hit=0.0)  # 200 · 2048 / 2048 = 200
    free = Regression(base=0.02, prompt_token=0.0, cached_token=0.0)
    assert best_rate(free, mean, Limits(2048, 256, 1e9), 10.0, 0.05) == pytest.approx(200 / (200 * 0.02))
    assert best_rate(free, mean, Limits(2048, 50, 1e9), 10.0, 0.05) == pytest.approx(50 / (200 * 0.02))
    assert best_rate(free, mean, Limits(2048, 256, 1948 * 7.5), 10.0, 0.05) == pytest.approx(7 / (200 * 0.02))


def test_own_example_cached_prompt_tokens_cost_memory_and_no_prefill() -> None:
    """ai-dynamo/dynamo, perf_model/agg.py: the hit rate discounts the prompt's compute, not its KV."""
    cold, warm = (Traffic(rate=1.0, prompt=1000, output=200, hit=hit) for hit in (0.0, 1.0))
    assert best_rate(BY, warm, LIMITS, 10.0, 0.05) == pytest.approx(27 / (200 * 0.0497))
    assert best_rate(BY, cold, LIMITS, 10.0, 0.05) < best_rate(BY, warm, LIMITS, 10.0, 0.05)


def test_own_example_the_rate_of_one_request_is_used_if_it_alone_misses_the_sla() -> None:
    """ai-dynamo/dynamo, perf_model/agg.py: an SLA that batch 1 misses gives 1 / (osl · iteration)."""
    mean = Traffic(rate=1.0, prompt=1000, output=200, hit=0.0)
    assert best_rate(BY, mean, LIMITS, 10.0, 0.001) == pytest.approx(1 / (200 * 0.0216))


def test_own_example_the_throughput_loop_acts_at_the_end_of_three_minutes() -> None:
    law, memory = DYNAMO_THROUGHPUT.default(), DYNAMO_THROUGHPUT.default().initial()
    counts = {}
    for call in range(0, 186, 5):
        pods = [served(9.0 * call)]
        decision, memory = law.decide(WIDE, fleet(pods, call), memory, float(call))
        counts[call] = decision.replicas
    mean = Traffic(9.0, 60, 40, 0.0)
    limits = Limits(WIDE.engine.scheduling.max_batched_tokens, 64, 32_000)
    each = best_rate(regression([MODEL], 80), mean, limits, 2.0, 0.1)
    assert counts[175] == 1
    assert counts[180] == math.ceil(9.0 / each) > 1


def test_own_example_the_throughput_loop_holds_while_replicas_start() -> None:
    """ai-dynamo/dynamo, planner-design.md, known limitations: later ticks hold while a transition is in progress."""
    law, memory = DYNAMO_THROUGHPUT.default(), DYNAMO_THROUGHPUT.default().initial()
    decision = None
    for call in range(0, 181, 5):
        pods = [served(90.0 * call)]
        decision, memory = law.decide(WIDE, fleet(pods, call, loading=1), memory, float(call))
    assert decision is not None and decision.replicas == 2


WORK = Work(prompt=500, prompts=100, context=600, chunk=2048)


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        ([Engine(30_000, 20_000, 500_000)] * 2, 1),  # TTFT of both is beyond 2 s
        ([Engine(30_000, 20_000, 500_000), Engine(0, 20_000, 500_000)], 0),  # of one only
        ([Engine(0, 90_000, 500_000)] * 2, 1),  # ITL of both: 20 + 10 + 90.6 ms
        ([Engine(0, 20_000, 500_000)] * 2, -1),  # with one less: 20 + 10 + 40.6 ms < 80 ms
        ([Engine(0, 30_000, 500_000)] * 2, 0),  # with one less: 90.6 ms
        ([Engine(0, 20_000, 30_000)] * 2, 0),  # it would not fit
        ([Engine(0, 20_000, 500_000)], 0),  # the last one stays
    ],
)
def test_own_example_the_load_loop_scales_up_if_all_engines_miss_and_down_if_all_keep_a_margin(
    engines: list[Engine], expected: int
) -> None:
    assert step(BY, engines, WORK, 2.0, 0.1) == expected


def test_own_example_the_load_loop_moves_one_step_and_only_a_settled_fleet() -> None:
    law = DYNAMO_LOAD.default()
    memory, counts = law.initial(), []
    for call in range(4):
        busy = sample(
            step_model=MODEL,
            running=60,
            waiting=300,
            kv_occupancy=0.9,
            arrived_total=100.0 * call,
            finished_total=50.0 * call,
            prompt_tokens_total=6000.0 * call,
            generated_tokens_total=2000.0 * call,
        )
        observed = fleet([busy] * 2, 5.0 * call, loading=1 if call == 3 else 0)
        decision, memory = law.decide(WIDE, observed, memory, 5.0 * call)
        counts.append(decision.replicas)
    assert counts == [2, 3, 3, 3]
