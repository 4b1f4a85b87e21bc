"""Shadow queues: what the counters mean on arrivals whose outcome is known."""

import itertools
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_perfmodel.shadow_queues import LOAD_NAMES, LOADS, EngineLimits, ShadowEngine, ShadowQueues, shadow_engine
from sluice_perfmodel.step_time import StepTimeModel
from sluice_perfmodel.workload import Work, prefill_seconds, throughput

ENGINE = ShadowEngine(base=0.02, sequence=0.0005, output=200.0, places=100.0, itl=0.1, ttft=2.0, longest_prefill=0.5)
EMBEDDING = StepTimeModel(base=0.04, prefill_token=1e-4, sequence=1e-3, steps=100)
AS_IT_WAS = LOADS.index(1.0)

# Seconds between two arrivals, and seconds of prompt work.
gaps = st.floats(0.005, 2.0)
works = st.floats(0.005, 1.5)


def fed(arrivals: Iterable[tuple[float, float]], engine: ShadowEngine = ENGINE) -> ShadowQueues:
    queues = ShadowQueues()
    for now, work in arrivals:
        queues.arrive(now, work, engine)
    return queues


def poisson(seed: int, count: int, gap: float, work: float) -> list[tuple[float, float]]:
    """Poisson arrivals with log-normal work of this median."""
    chance, now, arrivals = random.Random(seed), 0.0, []
    for _ in range(count):
        now += chance.expovariate(1.0 / gap)
        arrivals.append((now, work * chance.lognormvariate(0.0, 0.8)))
    return arrivals


@pytest.mark.parametrize("work", [0.01, 0.5, 1.5, 1.9])
def test_an_idle_engine_makes_nobody_late(work: float) -> None:
    queues = fed((60.0 * index, work) for index in range(300))
    assert (queues.arrived, queues.unreachable) == (300, 0)
    assert queues.late[: AS_IT_WAS + 1] == [0.0] * (AS_IT_WAS + 1)


@pytest.mark.parametrize("gap", [0.02, 0.5, 60.0])
def test_unreachable_requests_are_counted_apart_at_every_load(gap: float) -> None:
    queues = fed((gap * index, 5.0) for index in range(300))
    assert (queues.arrived, queues.unreachable) == (300, 300)
    assert queues.late == [0.0] * len(LOADS)


def test_requests_are_in_time_beside_unreachable_ones() -> None:
    queues = fed((10.0 * index, 5.0 if index % 2 else 0.1) for index in range(300))
    assert (queues.arrived, queues.unreachable) == (300, 150)
    assert queues.late == [0.0] * len(LOADS)


def test_a_request_without_a_judgement_is_counted_and_never_late() -> None:
    queues = ShadowQueues()
    queues.arrive_unjudged()
    assert (queues.arrived, queues.unreachable, sum(queues.late)) == (1, 0, 0.0)


@pytest.mark.parametrize(("load", "late"), [("0.667", 0.0), ("1", 0.205), ("1.5", 0.47), ("2", 0.602), ("4", 0.801)])
def test_an_overloaded_queue_is_late_for_the_work_beyond_its_share(load: str, late: float) -> None:
    """Outputs of one token: a step of 0.1 s has 0.0795 s for prompts, and each 0.1 s bring 0.1 s of work."""
    count = 6_000
    queues = fed(((0.1 * index, 0.1) for index in range(count)), ENGINE._replace(output=1.0, longest_prefill=0.0795))
    assert queues.late[LOAD_NAMES.index(load)] / count == pytest.approx(late, abs=0.02)


@given(gaps, works)
def test_on_smooth_arrivals_a_higher_load_makes_no_fewer_late(gap: float, work: float) -> None:
    count = 150
    late = fed((gap * index, work) for index in range(count)).late[: AS_IT_WAS + 1]
    for lower, higher in itertools.pairwise(late):
        assert lower <= higher + 1.0 + 0.03 * count


@given(st.integers(0, 10_000), gaps, works)
def test_loads_above_one_make_more_late_than_loads_below(seed: int, gap: float, work: float) -> None:
    queues = fed(poisson(seed, 150, gap, work))
    below, above = queues.late[:AS_IT_WAS], queues.late[AS_IT_WAS:]
    assert sum(below) / len(below) <= sum(above) / len(above) + 1.0
    assert all(0.0 <= late <= queues.arrived - queues.unreachable for late in queues.late[: AS_IT_WAS + 1])


def test_the_tightest_of_the_limits_bounds_the_places() -> None:
    model = StepTimeModel(base=0.02, prefill_token=1e-4, sequence=5e-4, kv_token=5e-7)
    limits = EngineLimits(itl=0.1, ttft=2.0, batch_tokens=2048, kv_tokens=1e6, sequences=256, longest_step=0.5)
    engine = shadow_engine(model, context=1000.0, output=50.0, limits=limits)
    assert engine.sequence == pytest.approx(1e-3)
    assert engine.places == pytest.approx(80.0)  # by the inter-token target: (0.1 − 0.02) / 0.001
    assert engine.longest_prefill == pytest.approx(0.2048)
    assert shadow_engine(model, 1000.0, 50.0, limits._replace(kv_tokens=3e4)).places == pytest.approx(30.0)
    assert shadow_engine(model, 1000.0, 50.0, limits._replace(sequences=8)).places == 8
    assert shadow_engine(model, 1000.0, 50.0, limits._replace(longest_step=0.1)).longest_prefill == pytest.approx(0.08)


def test_an_engine_with_slow_steps_still_serves_short_prompts() -> None:
    """A step alone takes more than a quarter of the target: prompts get the scheduler's least chunk in each."""
    slow = StepTimeModel(base=0.6, prefill_token=0.001, prefill_context=0.0, sequence=0.001, kv_token=0.0, steps=100)
    limits = EngineLimits(1.0, 2.0, 2048, 10_000.0, 8.0, 0.5)
    queues = ShadowQueues()
    queues.arrive(0.0, 0.01, shadow_engine(slow, 10.0, 5.0, limits))
    assert (queues.unreachable, max(queues.late)) == (0, 0.0)


def embedded(text: int, rate: float) -> ShadowQueues:
    """Poisson arrivals of texts of so many tokens, `rate` per second, whose ITL target is below one step."""
    limits = EngineLimits(itl=0.03, ttft=1.0, batch_tokens=2048, kv_tokens=1e5, sequences=64, longest_step=0.25)
    chance, now, queues = random.Random(7), 0.0, ShadowQueues()
    for _ in range(2_000):
        now += chance.expovariate(rate)
        engine = shadow_engine(EMBEDDING, context=text, output=1.0, limits=limits)
        queues.arrive(now, prefill_seconds(EMBEDDING, Work(1.0, text)), engine)
    return queues


def embedding_throughput(text: int) -> float:
    """Texts per second where each step computes 2,048 tokens."""
    return throughput(EMBEDDING, Work(1.0, text), 2048 / text)


def test_an_embedding_engine_at_half_its_throughput_has_none_late() -> None:
    assert embedded(500, 0.5 * embedding_throughput(500)).late[AS_IT_WAS] == 0.0


def test_longer_texts_at_the_same_rate_make_more_late() -> None:
    rate = 0.5 * embedding_throughput(250)
    late = [embedded(text, rate).late[AS_IT_WAS] for text in (250, 500, 1000)]
    assert late[0] < late[1] < late[2]
