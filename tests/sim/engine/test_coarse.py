"""Coarse mode: the scheduler's rules on counts agree with exact mode and give the operator the same metrics."""

import pytest

from sluice_engine.limits import Limits
from sluice_engine.scheduler import SchedulerConfig
from sluice_engine.scheduler.policies.tenants import OUTPUT_WEIGHT, PROMPT_WEIGHT
from sluice_operator.engines.exposition import parse
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.replica import started_engine
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.cluster.scenario import MODES, Mode, Settings
from sluice_sim.data import bundled
from sluice_sim.engine.coarse.engine import CoarseEngine
from sluice_sim.engine.exact import SimEngine
from sluice_sim.engine.offered_request import OfferedRequest
from sluice_sim.hardware.profiles import named_profile
from sluice_sim.results.summary import Summary, summarise
from sluice_sim.traces import Arrival, Part, read_trace, scaled
from tests.operator.autoscaler.fleet import MODEL, spec

CONFIG = SchedulerConfig(num_blocks=2_000, max_model_length=4_096)


def requests(count: int, every: float, prompt: int, output: int) -> list[OfferedRequest]:
    return [
        OfferedRequest(i, Arrival(every * i, prompt, output + i % 7), RequestRecord(every * i, prompt, output + i % 7))
        for i in range(count)
    ]


def started(mode: Mode, config: SchedulerConfig = CONFIG) -> SimEngine | CoarseEngine:
    engine = started_engine(
        Settings(MODEL, kv_tokens=16, mode=mode), config, Limits(itl_target=0.1, concurrency_max=64), 0.0
    )
    if not isinstance(engine, SimEngine | CoarseEngine):
        raise TypeError(engine)
    return engine


def served(mode: Mode, count: int, every: float, config: SchedulerConfig = CONFIG, prompt: int = 80,
           output: int = 30) -> tuple[list[RequestRecord], SimEngine | CoarseEngine]:  # fmt: skip
    engine = started(mode, config)
    mine = requests(count, every, prompt, output)
    for one in mine:
        engine.run_until(one.arrival.at)
        engine.submit(one)
    engine.run_until(every * count + 300.0)
    return [one.record for one in mine], engine


def test_sequential_requests_take_exactly_the_time_of_exact_mode() -> None:
    exact, _ = served("exact", 5, 10.0)
    coarse, _ = served("coarse", 5, 10.0)
    for one, other in zip(exact, coarse, strict=True):
        assert other.first_at == pytest.approx(one.first_at, abs=1e-9)
        assert other.ended_at == pytest.approx(one.ended_at, abs=1e-9)


def test_a_full_engine_serves_within_a_few_percent_of_exact() -> None:
    exact, one = served("exact", 200, 0.15)
    coarse, other = served("coarse", 200, 0.15)
    assert other.counters.steps == pytest.approx(one.counters.steps, rel=0.03)
    assert other.counters.generated == one.counters.generated
    assert _mean(coarse) == pytest.approx(_mean(exact), rel=0.03)


def test_preemption_frees_memory_and_every_request_finishes() -> None:
    tight = SchedulerConfig(num_blocks=80, max_model_length=1_024, predicted_admission=False)
    records, engine = served("coarse", 30, 0.05, tight, prompt=60, output=300)
    assert all(record.ended_at is not None for record in records)
    assert engine.state().preemptions > 0
    assert engine.state().running == engine.state().waiting == engine.requests == engine.pending_prefill_tokens == 0
    assert engine.state().held == 0
    assert engine.counters.generated == sum(record.output - 1 for record in records)  # less the tokens that end them


@pytest.mark.parametrize("mode", MODES)
def test_a_tenant_is_not_charged_for_the_end_of_sequence_token(mode: Mode) -> None:
    engine = started(mode)
    for number, most in enumerate((None, 20)):  # the second answer ends because it has all that was asked for
        engine.submit(
            OfferedRequest(number, Arrival(0.0, 100, 20, tenant="a", max_tokens=most), RequestRecord(0.0, 100, 20))
        )
    engine.run_until(60.0)
    counters = engine.scheduler.state.counters if isinstance(engine, SimEngine) else engine.tenant_counters
    assert engine.counters.finished == 2
    assert counters.served("a") == 2 * 100 * PROMPT_WEIGHT + (19 + 20) * OUTPUT_WEIGHT


@pytest.mark.parametrize("mode", MODES)
def test_the_direct_sample_equals_the_parsed_text(mode: Mode) -> None:
    engine = started(mode)
    for one in requests(70, 0.0, 100, 200):
        engine.submit(one)
    engine.run_until(3.0)
    state = engine.state()
    assert state.running and state.waiting and state.held
    assert engine.counters.sample(state) == parse(engine.counters.render(state))


def under(mode: Mode, minimum: int, load: float, seconds: float, error: float = 0.0) -> Summary:
    path, profile = bundled("azure2023_conv"), named_profile("llama31-8b-a100-tp2")
    assert path is not None
    arrivals = scaled(read_trace(path, Part(start=600, seconds=seconds)), load, seed=0)
    settings = Settings(profile.model, 970_000, mode=mode, cold_start=60.0, profile_error=error)
    wanted = spec(scaling={"minReplicas": minimum, "maxReplicas": 6}, admission={"concurrency": {"min": 2, "max": 256}})
    return summarise(Fleet(wanted, settings).run(arrivals))


@pytest.mark.parametrize(("minimum", "load", "seconds"), [(2, 1.2, 600.0), (1, 1.5, 300.0)])
def test_coarse_mode_agrees_with_exact_mode_on_azure_within_five_percent(
    minimum: int, load: float, seconds: float
) -> None:
    """Attainment and GPU-hours, with replicas enough from the beginning and with too few."""
    exact, coarse = (under(mode, minimum, load, seconds) for mode in MODES)
    assert (exact.mode, coarse.mode) == ("exact", "coarse")
    assert coarse.attainment == pytest.approx(exact.attainment, rel=0.05)
    assert coarse.replica_hours == pytest.approx(exact.replica_hours, rel=0.05)
    assert coarse.requests == exact.requests
    assert exact.replicas_max > 1


def test_chunks_match_exact_mode_with_a_positive_profile_error() -> None:
    exact, coarse = (under(mode, 2, 3.5, 300.0, error=0.2) for mode in MODES)
    assert 0.9 < exact.attainment < 0.97
    assert coarse.attainment == pytest.approx(exact.attainment, abs=0.01)


def _mean(records: list[RequestRecord]) -> float:
    return sum((record.ended_at or 0.0) - record.arrived_at for record in records) / len(records)
