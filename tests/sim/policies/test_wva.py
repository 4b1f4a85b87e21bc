"""llm-d's Workload Variant Autoscaler on the examples of its documentation and its own tests."""

import math

import pytest

from sluice_perfmodel.slo_limits import Targets
from sluice_sim.policies.wva.mm1_queue import largest, solve
from sluice_sim.policies.wva.queueing import (
    WVA_QUEUEING,
    Parameters,
    Size,
    decode,
    fitted,
    iteration,
    largest_rate,
    prefill,
)
from sluice_sim.policies.wva.v1 import WVA_V1
from sluice_sim.policies.wva.v1 import analyse as spare
from sluice_sim.policies.wva.v2 import WVA_V2, Replica, Shape, from_limits, step
from sluice_sim.policies.wva.v2 import analyse as tokens
from tests.operator.autoscaler.fleet import MODEL, spec
from tests.sim.policies.pods import fleet, sample, served

WIDE = spec(scaling={"maxReplicas": 50})
SHORT = Shape(prompt=100, output=50, batched_tokens=0, sequences=256)


def test_five_replicas_of_the_documentation_ask_for_one_more() -> None:
    """WVA, docs/saturation-analyzer.md, "Multi-Variant Analysis": KV .70 .75 .60 .65 .55, queue 2 3 1 2 1. Their mean
    spare KV is 0.15 and queue 3.2: enough, but not with one replica less (0.0 and 2.75)."""
    loads = [(0.70, 2.0), (0.75, 3.0), (0.60, 1.0), (0.65, 2.0), (0.55, 1.0)]
    assert spare(loads) == 0
    assert spare(loads, queue_spare=3.3) == 1


def test_own_example_scale_up_where_the_mean_spare_falls_below_a_trigger() -> None:
    """WVA, docs/user-guide/saturation-analyzer.md, "Scale-Up Decision": spare KV < 0.1 or spare queue < 3."""
    assert spare([(0.71, 0.0), (0.75, 0.0)]) == 1
    assert spare([(0.10, 2.5), (0.10, 2.5)]) == 1
    assert spare([(0.69, 2.0)]) == 0


def test_own_example_saturated_replicas_are_left_out_of_the_mean() -> None:
    """WVA, docs/user-guide/saturation-analyzer.md, "Identify Non-Saturated Replicas": KV < 0.80 and queue < 5."""
    assert spare([(0.95, 0.0), (0.50, 0.0)]) == 0
    assert spare([(0.10, 6.0), (0.90, 0.0)]) == 1


def test_own_example_scale_down_only_where_the_rest_keeps_its_spare_and_two_are_free() -> None:
    """WVA, docs/user-guide/saturation-analyzer.md, "Scale-Down Safety Simulation": load × N/(N−1), N ≥ 2."""
    assert spare([(0.2, 0.5), (0.2, 0.5)]) == -1
    assert spare([(0.2, 1.5), (0.2, 1.5)]) == 0
    assert spare([(0.0, 0.0)]) == 0


def test_own_example_the_autoscaler_runs_once_a_minute_and_its_hpa_waits_four() -> None:
    law, memory = WVA_V1.default(), WVA_V1.default().initial()
    counts = {}
    for call in range(0, 301, 15):
        decision, memory = law.decide(WIDE, fleet([sample(waiting=9)] * 2, call), memory, float(call))
        counts[call] = decision.replicas
    assert memory.published.wanted == 3
    assert counts[225] == 2 and counts[300] == 3


def test_the_count_holds_while_a_replica_loads() -> None:
    """WVA, docs/user-guide/saturation-analyzer.md, "Cascade Scaling Prevention": timeline with protection."""
    law = WVA_V1.default()
    _, memory = law.decide(WIDE, fleet([sample(waiting=9)] * 2, loading=1), law.initial(), 0.0)
    assert memory.published.wanted == 3


@pytest.mark.parametrize(
    ("in_use", "queue", "expected"),
    [(5_000, 0, 12_800), (8_000, 6, 8_000), (4_000, 10, 4_000)],
)
def test_a_replicas_capacity_is_its_memory_or_the_load_observed_at_saturation(
    in_use: float, queue: float, expected: float
) -> None:
    """WVA, saturation_v2/analyzer_test.go, "k1/k2 interaction": 16,000 tokens, threshold 0.8."""
    assert tokens([Replica(in_use, 16_000, queue)], SHORT, {})[0] == expected


def test_capacity_observed_at_saturation_is_kept_by_output_length() -> None:
    """WVA, saturation_v2/analyzer_test.go, "k2 history" and "Output-length bucketing"."""
    _, _, history = tokens([Replica(8_000, 16_000, 6)], SHORT, {})
    assert tokens([Replica(6_000, 16_000, 2)], SHORT, history)[0] == 8_000
    long = Shape(prompt=100, output=600, batched_tokens=0, sequences=256)
    assert tokens([Replica(6_000, 16_000, 2)], long, history)[0] == 12_800


@pytest.mark.parametrize(
    ("batched", "sequences", "prompt", "output", "expected"),
    [(4096, 256, 500, 100, 140_800), (8192, 64, 100, 200, 12_800), (8192, 256, 500, 0, 0)],
)
def test_capacity_from_the_batch_limits(
    batched: int, sequences: int, prompt: float, output: float, expected: float
) -> None:
    """WVA, saturation_v2/analyzer_test.go, "estimateCapacityFromParams"."""
    assert from_limits(Shape(prompt, output, batched, sequences)) == expected


def test_utilisation_between_the_boundaries_is_a_steady_state() -> None:
    """WVA, saturation_v2/analyzer_test.go, "Scaling signals": 10,000 of 12,800 is 0.78, between 0.70 and 0.85;
    11,000 and three waiting prompts of 100 are above; twice 1,000 of 25,600 leave one replica free."""
    assert step(12_800, 10_000, 1, 0) == 0
    assert step(12_800, 11_300, 1, 0) == 1
    assert step(12_800, 2_000, 2, 0) == -1


def test_pending_replicas_count_for_scale_up_and_not_for_scale_down() -> None:
    """WVA, saturation_v2/analyzer_test.go, "Pending replicas"."""
    assert step(12_800, 11_300, 1, 1) == 0
    assert step(12_800, 1_000, 2, 1) == -1


def test_own_example_the_demand_of_waiting_prompts_grows_the_pool_through_the_hpa() -> None:
    law, memory = WVA_V2.default(), WVA_V2.default().initial()
    decision = None
    for call in range(0, 301, 15):
        pods = [
            sample(
                kv_occupancy=0.9,
                waiting=9,
                arrived_total=100.0 + call,
                finished_total=100.0 + call,
                prompt_tokens_total=6_000.0 + 60 * call,
                generated_tokens_total=4_000.0 + 40 * call,
            )
        ] * 2
        decision, memory = law.decide(WIDE, fleet(pods, call), memory, float(call))
    # Each holds what is in use while nine wait: 28,800 tokens; wanted (2 · (28,800 + 9 · 60)) / 0.85 = 2.4 replicas.
    assert decision is not None and decision.replicas == 3


@pytest.mark.parametrize(
    ("prompt", "batch", "expected"), [(0, 4.0, 0.0), (1000, 1.0, 32.0), (2000, 8.0, 208.0), (500, 2.5, 29.25)]
)
def test_the_prompt_time_matches_the_sources_own_table(prompt: float, batch: float, expected: float) -> None:
    """WVA, pkg/analyzer/queueanalyzer_test.go, TestPrefillParms_PrefillTime: α 10, β 0.01, γ 0.001, no output."""
    assert prefill(Parameters(10.0, 0.01, 0.001), Size(prompt, 0), batch) == pytest.approx(expected)


@pytest.mark.parametrize(("batch", "expected"), [(1.0, 1.23), (4.0, 1.575), (8.0, 2.035), (2.5, 1.4025)])
def test_the_token_time_matches_the_sources_own_table(batch: float, expected: float) -> None:
    """WVA, pkg/analyzer/queueanalyzer_test.go, TestDecodeParms_DecodeTime: α 1, β 0.1, γ 0.01, one token each."""
    assert decode(Parameters(1.0, 0.1, 0.01), Size(1, 1), batch) == pytest.approx(expected)


def test_the_rate_is_within_the_model_s_range_and_meets_both_targets() -> None:
    """WVA, pkg/analyzer/queueanalyzer_test.go, TestQueueAnalyzer_Size: α 1, β 0.01, γ 0.001 (ms), batches of 8, 100
    prompt and 10 output tokens, TTFT 50 ms and ITL 5 ms are feasible; targets below one iteration are not."""
    by, size = Parameters(1.0, 0.01, 0.001), Size(100, 10)
    rate = largest_rate(by, size, 8, Targets(ttft=50.0, itl=5.0))
    top = 8 / (prefill(by, size, 8) + 10 * decode(by, size, 8))
    assert rate is not None and 0 < rate <= top
    assert largest_rate(by, size, 8, Targets(ttft=50.0, itl=0.5)) is None
    tight = largest_rate(by, size, 8, Targets(ttft=4.0, itl=5.0))
    assert tight is not None and tight < rate


def test_a_constant_service_rate_gives_the_m_m_1_k_queue() -> None:
    """M/M/1/K (Kleinrock, "Queueing Systems" I, 3.6): ρ = 0.5, K = 10."""
    steady = solve(0.5, [1.0], 9)
    p0 = (1 - 0.5) / (1 - 0.5**11)
    inside = sum(n * p0 * 0.5**n for n in range(11))
    assert steady.serving == pytest.approx(1 - p0)
    assert steady.throughput == pytest.approx(0.5 * (1 - p0 * 0.5**10))
    assert steady.wait + steady.service == pytest.approx(inside / steady.throughput)


def test_the_closed_form_of_the_queue_states_equals_their_sum() -> None:
    """WVA, pkg/analyzer/mm1modelstatedependent.go sums every state; here the tail is closed."""
    served = [n / (2.0 + 0.3 * n) for n in range(1, 9)]
    for rate in (0.2, 1.0, served[-1], 2.5):
        p = [1.0]
        for n in range(8 + 40):
            p.append(p[-1] * rate / served[min(n, 7)])
        total = sum(p)
        steady = solve(rate, served, 40)
        serving = sum(min(n, 8) * weight for n, weight in enumerate(p)) / total
        everyone = sum(n * weight for n, weight in enumerate(p)) / total
        assert steady.serving == pytest.approx(serving)
        assert steady.wait + steady.service == pytest.approx(everyone / (rate * (1 - p[-1] / total)))


def test_the_bisection_finds_the_largest_rate() -> None:
    """WVA, pkg/analyzer/utils.go, BinarySearch: below the region there is no rate, above it the largest."""
    assert largest(0.0, 10.0, 9.0, lambda x: x * x) == pytest.approx(3.0)
    assert largest(0.0, 2.0, 9.0, lambda x: x * x) == 2.0
    assert largest(4.0, 10.0, 9.0, lambda x: x * x) is None


def test_own_example_three_parameters_cost_what_five_terms_do() -> None:
    """α, β, γ from the engine's fit: a decode iteration is the same, a prompt at most one sequence's cost more."""
    size = Size(60, 40)
    by = fitted([MODEL], size)
    assert by.alpha == 0.03
    ours = MODEL.base + 10 * (MODEL.sequence + MODEL.kv_token * 80 + MODEL.prefill_token * 100 / 41)
    assert iteration(by, size, 10) == pytest.approx(ours)
    assert math.isclose(by.gamma * 80, MODEL.kv_token * 80 + MODEL.sequence)


def test_own_example_replicas_are_the_rate_over_the_largest_rate() -> None:
    law, memory = WVA_QUEUEING.default(), WVA_QUEUEING.default().initial()
    for call in range(0, 301, 15):
        pods = [served(8.0 * call)]
        _, memory = law.decide(WIDE, fleet(pods, call), memory, float(call))
    by, size = fitted([MODEL], Size(60, 40)), Size(60, 40)
    rate = largest_rate(by, size, 64, Targets(ttft=2.0, itl=0.1))
    assert rate is not None and memory.published.wanted == math.ceil(8.0 / rate)
