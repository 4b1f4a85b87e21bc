"""The simulator end to end: times computed by hand, scaling under a trace, determinism, complete accounting, no torch."""

import subprocess
import sys
from dataclasses import replace

import pytest

from sluice_engine.limits import Limits
from sluice_engine.scheduler import SchedulerConfig
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.api.spec import Scaling
from sluice_operator.autoscaler.signals.scrape_deltas import FleetDelta
from sluice_operator.autoscaler.signals.windows import WindowSums
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision, Observed
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.cluster.scenario import MODES, Mode, Settings
from sluice_sim.engine.exact import SimEngine
from sluice_sim.engine.offered_request import OfferedRequest
from sluice_sim.engine.step_times import Profiled
from sluice_sim.policies.sluice import Sluice
from sluice_sim.results.run import Run
from sluice_sim.results.summary import summarise
from sluice_sim.traces import Arrival, poisson
from tests.operator.autoscaler.fleet import MODEL, spec

SETTINGS = Settings(MODEL, kv_tokens=32_000, interval=1.0, cold_start=10.0)


def engine(**bounds: float) -> SimEngine:
    started = Limits(**{"itl_target": 0.1, "concurrency_max": 64, **bounds})  # type: ignore[arg-type]
    return SimEngine(Profiled(MODEL), SchedulerConfig(num_blocks=2_000, max_model_length=4_096), started, 0.0)


def request(number: int, at: float, prompt: int, output: int) -> OfferedRequest:
    return OfferedRequest(number, Arrival(at, prompt, output), RequestRecord(at, prompt, output))


def day() -> list[Arrival]:
    """A minute of half load, a minute and a half above what one replica serves, and quiet for longer than the memory."""
    parts = ((0, 60, 1.2), (60, 90, 4.5), (150, Scaling().burst_memory_seconds + 300, 0.2))
    return [
        Arrival(start + one.at, one.prompt, one.output)
        for index, (start, seconds, rate) in enumerate(parts)
        for one in poisson(rate, seconds, 60, 40, seed=index)
    ]


def replay() -> Run:
    return Fleet(spec(), SETTINGS).run(day())


@pytest.fixture(scope="module")
def run() -> Run:
    return replay()


def test_a_single_request_takes_the_profiles_time() -> None:
    sim, one = engine(), request(1, 0.0, 100, 11)
    sim.submit(one)
    sim.run_until(5.0)
    record = one.record
    assert record.ttft == pytest.approx(0.03 + 100 * 0.0002)
    assert record.itl == pytest.approx(0.03 + 0.004 + 2e-6 * (101 + 110) / 2, rel=1e-3)
    assert sim.clock == 5.0


def test_steps_in_closed_form_equal_single_steps() -> None:
    """A scrape cuts runs of steps; cutting at every millisecond leaves single steps. Both live the same life."""
    coarse, fine = engine(), engine()
    lives = []
    for sim in (coarse, fine):
        requests = [request(i, 0.1 * i, 80, 30 + i) for i in range(6)]
        for one in requests:
            sim.run_until(one.arrival.at)
            sim.submit(one)
        lives.append([one.record for one in requests])
    coarse.run_until(8.0)
    for millisecond in range(500, 8_001):
        fine.run_until(millisecond / 1000, lazily=millisecond % 3 == 0)
    assert coarse.counters.steps == fine.counters.steps
    for one, other in zip(*lives, strict=True):
        assert one.ended_at == pytest.approx(other.ended_at, abs=1e-9)
    assert coarse.counters.itl.counts == fine.counters.itl.counts
    coarse.scheduler.check()


@pytest.mark.parametrize("mode", MODES)
def test_an_output_is_cut_at_the_context_length(mode: Mode) -> None:
    def served(output: int) -> RequestRecord:
        return Fleet(spec(), replace(SETTINGS, mode=mode)).run([Arrival(0.0, 8_000, output)]).records[0]

    assert served(700) == served(192)
    assert served(192).ended_at is not None


@pytest.mark.parametrize("arrival", [Arrival(0.0, 8_192, 1), Arrival(0.0, 8_000, 100, max_tokens=193)])
def test_a_prompt_or_max_tokens_beyond_the_context_is_rejected(arrival: Arrival) -> None:
    assert Fleet(spec(), SETTINGS).run([arrival]).records[0].refused


def test_the_operators_parser_reads_what_a_simulated_engine_publishes() -> None:
    sim = engine(concurrency_max=3)
    for number in range(5):
        sim.submit(request(number, 0.0, 160, 400))
    sim.run_until(4.0)
    sample = sim.scrape()
    assert (sample.running, sample.waiting, sample.arrived_total, sample.concurrency) == (3, 2, 5, 3)
    assert 0 < sample.kv_occupancy < 0.1
    assert sample.kv_block_seconds_total > 0
    assert sample.step_model is not None and sample.step_model.steps > 50
    assert sample.ttft.count == 3 and sample.itl.count > 100


def test_the_fleet_grows_under_load_shrinks_after_it_and_says_why(run: Run) -> None:
    summary = summarise(run)
    assert (summary.replicas_min, summary.replicas_max) == (1, 2)
    moves = [said.reason for said in run.decisions if said.reason.dial == "replicas"]
    assert [(move.before, move.after) for move in moves] == [(1, 2), (2, 1)]
    assert all("would have served" in move.sentence for move in moves)


def test_the_limit_falls_under_load_and_rises_when_the_second_replica_takes_its_half(run: Run) -> None:
    ready = next(at for at, _ in run.replicas if at > 60 and dict(run.replicas)[at] == 2) + SETTINGS.cold_start
    quiet = [limit for at, limit in run.limits if 30 <= at < 60]
    loaded = [limit for at, limit in run.limits if ready - 5 <= at < ready]
    relieved = [limit for at, limit in run.limits if ready + 20 <= at < 150]
    assert sum(loaded) / len(loaded) < sum(quiet) / len(quiet) - 1
    assert sum(relieved) / len(relieved) > sum(loaded) / len(loaded) + 0.5


def test_every_request_ends_and_is_counted_once(run: Run) -> None:
    assert all(record.refused or record.ended_at is not None for record in run.records)
    assert summarise(run).requests == len(day())


def test_the_same_trace_gives_the_same_run(run: Run) -> None:
    again = replay()
    assert again.records == run.records
    assert [said.reason for said in again.decisions] == [said.reason for said in run.decisions]


def test_the_simulator_never_loads_torch() -> None:
    code = (
        "import sys; import sluice_sim.cluster.fleet, sluice_sim.cli.command; "
        "sys.exit(any(m.split('.')[0] in ('torch', 'transformers', 'kubernetes', 'kopf') for m in sys.modules))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, env={"PYTHONPATH": ":".join(sys.path)}).returncode
        == 0
    )


class Tally(Sluice):
    """Sluice's law, and the deltas of all its passes, by their begin: a short one is extended by the next pass."""

    deltas: dict[float, FleetDelta]

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: AutoscalerState, now: float
    ) -> tuple[Decision, AutoscalerState]:
        decision, memory = super().decide(spec, observed, memory, now)
        Tally.deltas |= {round(delta.at - delta.seconds, 3): delta for delta in memory.signals.window.deltas[-1:]}
        return decision, memory


@pytest.mark.parametrize(("mode", "seconds", "failures"), [("exact", 240.0, 0.0), ("coarse", 1_200.0, 1.0)])
def test_the_window_counts_each_request_once_however_many_replicas_reject_it(
    mode: Mode, seconds: float, failures: float
) -> None:
    """Four replicas are offered the load of seven: a request is rejected by all in turn, or served by a later one. Some
    replicas die: their running requests are lost, and the waiting ones are offered to the others."""
    full = spec(scaling={"minReplicas": 4, "maxReplicas": 4})
    Tally.deltas = {}
    run = Fleet(full, replace(SETTINGS, mode=mode, begin=4, pod_failures=failures), Tally()).run(
        poisson(20.0, seconds, 60, 40, seed=3)
    )
    good, missed = sum(one.good for one in run.records), sum(not one.good for one in run.records)
    kept = WindowSums(tuple(Tally.deltas.values())).outcome
    assert missed > 0.2 * len(run.records) and (run.failures > 0) == (failures > 0)
    assert kept.met == pytest.approx(good, rel=0.03)
    assert kept.missed == pytest.approx(missed, rel=0.03)
    for said in run.decisions:
        if said.reason.binding == "Refusing":
            assert dict(said.reason.numbers)["refused"] <= 2.0 * 30.0 * missed / seconds
