"""llm-d's two laws, driven by latency and by tokens, on the values of their guides."""

from dataclasses import replace

import pytest

from sluice_operator.autoscaler.signals.histograms import BOUNDS
from sluice_operator.autoscaler.values import EngineSample, Histogram
from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.policies.hpa.ratio import in_total
from sluice_sim.policies.llmd.slo import LLMD_SLO, SloMemory, desired
from sluice_sim.policies.llmd.tokens import LLMD_TOKENS, prefill_speed
from tests.operator.autoscaler.fleet import MODEL, spec
from tests.sim.policies.pods import fleet, sample

WIDE = spec(scaling={"maxReplicas": 100})
TTFT = 2.0


def served(first: float, requests: int) -> EngineSample:
    """An engine that has answered `requests`, each after `first` seconds."""
    counts = tuple(float(requests) if first <= bound else 0.0 for bound in BOUNDS)
    return sample(ttft=Histogram(BOUNDS, counts), arrived_total=requests, finished_total=requests)


def after(seconds: float, first: float, pods: int) -> tuple[int, SloMemory]:
    """The count after a time in which every pod answers one request per 5 s, all after `first` seconds; pods come and
    go at once."""
    law = LLMD_SLO.default()
    memory, count = law.initial(), pods
    for call in range(int(seconds / 5) + 1):
        decision, memory = law.decide(WIDE, fleet([served(first, 1 + call)] * count, 5.0 * call), memory, 5.0 * call)
        count = decision.replicas or 0
    return count, memory


def test_between_the_thresholds_the_pool_holds() -> None:
    """llm-d, README.slo-aware.md, section 2: hysteresis band 0.40–0.55."""
    assert [desired(s, 6, 6) for s in (0.41, 0.5, 0.55)] == [6, 6, 6]


@pytest.mark.parametrize(
    ("saturation", "provisioned", "ready", "expected"),
    [
        (0.60, 4, 4, 5),  # 4 + ceil(4 · 0.0909)
        (1.10, 4, 4, 8),  # twice the threshold: twice the pods
        (2.00, 4, 4, 15),  # the clamp: 4 + ceil(4 · 2.636)
        (1.10, 8, 4, 8),  # as many warm up as are missing: the credit leaves nothing to ask for
        (1.65, 6, 4, 12),  # 6 + ceil(6 · (1.65 · 4/6 / 0.55 − 1))
        (0.20, 6, 6, 3),  # half of the lower threshold: half of the pods
        (0.39, 6, 6, 6),  # floor(6 · 0.025) = 0
        (0.20, 6, 3, 3),  # shrinking is not credited
        (0.00, 5, 5, 0),  # an idle pool reads 0; the HPA clips to the minimum
    ],
)
def test_own_example_of_the_published_formula(saturation: float, provisioned: int, ready: int, expected: int) -> None:
    assert desired(saturation, provisioned, ready) == expected


def test_own_example_the_signal_is_the_worse_percentile_clamped_at_two_and_smoothed() -> None:
    _, memory = after(180, first=40.0, pods=2)
    assert memory.saturation and all(value == 2.0 for _, value in memory.saturation)
    _, calm = after(180, first=0.5, pods=2)
    assert max(value for _, value in calm.saturation) < 0.25 + 1e-9


def test_own_example_it_grows_once_the_signal_was_high_for_half_a_minute() -> None:
    """The first tick has seen no second scrape and reads 0: what it recommended leaves the window after 30 s. Then at
    most max(100 %, 4 pods) in any 60 s."""
    counts = {seconds: after(seconds, first=4.0, pods=2)[0] for seconds in range(0, 121, 15)}
    assert (counts[15], counts[30]) == (2, 4)
    assert (counts[60], counts[120]) == (6, 12)
    assert all(counts[at + 60] <= max(2 * counts[at], counts[at] + 4) for at in range(0, 61, 15))


def test_own_example_it_drains_one_pod_in_two_minutes_after_three() -> None:
    assert after(175, first=0.2, pods=6)[0] == 6
    assert after(185, first=0.2, pods=6)[0] == 5
    assert after(295, first=0.2, pods=6)[0] == 5
    assert after(305, first=0.2, pods=6)[0] == 4


def test_own_example_prefill_speed_is_the_chunk_over_the_ttft_of_an_idle_engine() -> None:
    """llm-d, keda-epp-token-aware/README.md, prerequisites: V_P = CHUNK_SIZE / median(TTFT)."""
    model = StepTimeModel(base=0.05, prefill_token=1e-4, prefill_context=1e-9)
    assert prefill_speed(model, 8192) == pytest.approx(8192 / (0.05 + 0.8192 + 1e-9 * 8192**2 / 2))
    assert prefill_speed(None, 8192) == 0.0


@pytest.mark.parametrize(("rate", "expected"), [(0.15, 1), (0.30, 1), (0.50, 2)])
def test_offered_load_becomes_the_replicas_of_the_guide_s_table(rate: float, expected: int) -> None:
    """llm-d, keda-epp-token-aware/README.md, "How offered load becomes a replica count": V_P 2696 tokens/s, prompts
    of 8192 tokens, ceil(load / 1.5). Its last row (1.40 → 4) is the cap with a real backlog, not this formula."""
    assert in_total(rate * 8192 / 2696, 1.5, 0, 1) == expected


def test_own_example_waiting_prompts_are_turned_into_seconds_and_shared() -> None:
    """60 tokens each; V_P = 2048 / (0.03 + 0.0002 · 2048) = 4659 tokens/s with the default chunk."""
    law, long = (
        LLMD_TOKENS.default(),
        spec(scaling={"maxReplicas": 100}, engine={"scheduling": {"maxBatchedTokens": 2048}}),
    )
    memory, model = law.initial(), replace(MODEL, steps=1000)
    before = sample(step_model=model)
    decision, memory = law.decide(long, fleet([before]), memory, 0.0)
    assert decision.replicas == 1
    busy = sample(step_model=model, arrived_total=100, prompt_tokens_total=6_000, waiting=500)
    decision, memory = law.decide(long, fleet([busy], 15.0), memory, 15.0)
    assert decision.replicas == 5  # 500 · 60 / 4659 = 6.4 s; / 1.5 = 4.3


def test_own_example_the_fuller_of_prompt_backlog_and_kv_cache_wins() -> None:
    """llm-d, keda-epp-token-aware/README.md, "The two topologies": max(ceil(backlog / 1.5), ceil(kv / 0.8))."""
    law = LLMD_TOKENS.default()
    full = [sample(kv_occupancy=0.95, step_model=MODEL)] * 3
    assert law.decide(WIDE, fleet(full), law.initial(), 0.0)[0].replicas == 4  # 2.85 / 0.8 = 3.56


def test_own_example_both_hold_when_no_engine_answers() -> None:
    for law in (LLMD_SLO.default(), LLMD_TOKENS.default()):
        assert law.decide(WIDE, fleet([None] * 3), law.initial(), 0.0)[0].replicas == 3
