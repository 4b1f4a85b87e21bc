"""Cold starts, pod failures, late and lost metrics, a wrong profile: drawn by seed, and visible to the law as in a cluster."""

import pytest

from sluice_engine.limits import Limits
from sluice_engine.scheduler import SchedulerConfig
from sluice_operator.autoscaler.signals.freshness import fleet_metrics
from sluice_operator.autoscaler.values import Observed
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.replica import Pod, started_engine
from sluice_sim.cluster.scenario import MODES, Chance, Mode, Settings
from sluice_sim.results.run import Run
from sluice_sim.results.summary import summarise
from sluice_sim.traces import Arrival, poisson
from tests.operator.autoscaler.fleet import MODEL, spec

DIES_EARLY = 2  # a seed
LOAD = poisson(1.2, 120, 60, 40, seed=1)


def settings(**changes: object) -> Settings:
    return Settings(MODEL, 32_000, **changes)  # type: ignore[arg-type]


def run(replicas: int = 2, arrivals: tuple[Arrival, ...] = LOAD, **changes: object) -> Run:
    return Fleet(spec(scaling={"minReplicas": replicas}), settings(**changes)).run(arrivals)


def test_cold_starts_vary_around_their_mean_by_seed_and_start_number() -> None:
    chance = Chance(settings(cold_start=100.0, cold_start_spread=0.3, seed=1))
    drawn = [chance.cold_start(f"replica-{i}", 1) for i in range(200)]
    assert all(70 <= one <= 130 for one in drawn)
    assert sum(drawn) / len(drawn) == pytest.approx(100, abs=4)
    assert chance.cold_start("replica-3", 1) == drawn[3] != chance.cold_start("replica-3", 2)
    assert Chance(settings(cold_start=100.0)).cold_start("replica-1", 1) == 100.0


def test_the_given_share_of_pods_fails_within_an_hour() -> None:
    chance = Chance(settings(pod_failures=0.3))
    drawn = [chance.failure(f"replica-{i}") for i in range(500)]
    failing = [one for one in drawn if one is not None]
    assert len(failing) == pytest.approx(150, abs=30)
    assert all(0 <= one < 3600 for one in failing)


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_pod_restarts_and_every_request_is_accounted_for(mode: Mode) -> None:
    long = poisson(0.5, 1500, 60, 150, seed=3)
    found = Fleet(spec(scaling={"minReplicas": 3}), settings(pod_failures=1.0, cold_start=20.0, mode=mode, seed=2)).run(
        long
    )
    summary = summarise(found)
    assert summary.pod_failures >= 1
    assert summary.failed >= 1
    assert len(found.records) == len(long)
    for record in found.records:
        assert record.refused + record.failed + (record.ended_at is not None) == 1
    assert min(moment.ready for moment in found.fleet_samples) < 3 <= found.fleet_samples[-1].ready


def fleet_chance() -> Chance:
    return Chance(settings(pod_failures=1.0, seed=DIES_EARLY))


def test_requests_without_a_first_token_move_to_the_remaining_replicas() -> None:
    """Both pods are full when the first of them dies: what waited there is served, what had begun is broken."""
    fleet = Fleet(spec(scaling={"minReplicas": 2, "maxReplicas": 2}), settings(pod_failures=1.0, seed=DIES_EARLY))
    dies_at = min(after for pod in ("replica-1", "replica-2") if (after := fleet_chance().failure(pod)) is not None)
    burst = [Arrival(dies_at - 0.3 + 0.001 * number, 100, 60) for number in range(40)]
    found = fleet.run(burst)
    broken = [record for record in found.records if record.failed]
    assert found.failures >= 1 and 0 < len(broken) < 20
    assert all(record.first_at is not None for record in broken)
    assert sum(record.ended_at is not None for record in found.records) == 40 - len(broken)


def test_delayed_samples_reach_the_law_late_and_appear_fresh() -> None:
    late, chance = settings(metrics_delay=30.0), Chance(settings())
    config, bounds = SchedulerConfig(num_blocks=2_000), Limits()
    pod = Pod("replica-1", 0.0, 0.0, started_engine(settings(), config, bounds, 0.0))
    assert pod.view(0.0, late, chance).sample is None
    assert pod.view(20.0, late, chance).sample is None
    view = pod.view(40.0, late, chance)
    assert view.sample is not None and view.sample_at == 30.0


def test_after_a_lost_scrape_the_law_sees_the_previous_sample() -> None:
    lost = settings(metrics_loss=1.0)
    chance = Chance(lost)
    assert all(chance.scrape_lost() for _ in range(5))
    assert not Chance(settings()).scrape_lost()
    blind = run(metrics_loss=1.0)
    assert not [said for said in blind.decisions if said.reason.dial == "replicas"]


def test_a_positive_profile_error_lengthens_the_times() -> None:
    slow, fair = summarise(run(profile_error=0.2)), summarise(run())
    assert slow.itl.p50 is not None and fair.itl.p50 is not None
    assert slow.itl.p50 > 1.15 * fair.itl.p50
    assert settings(profile_error=0.2).truth.base == pytest.approx(1.2 * MODEL.base)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_run_and_another_one_another(mode: Mode) -> None:
    changes = {"metrics_loss": 0.1, "cold_start_spread": 0.5, "pod_failures": 0.5, "mode": mode, "cold_start": 20.0}
    one, same, other = (run(1, poisson(6.0, 120, 60, 40, seed=1), seed=seed, **changes) for seed in (1, 1, 2))
    assert one.records == same.records and one.fleet_samples == same.fleet_samples
    assert one.fleet_samples != other.fleet_samples


def test_invalid_settings_are_rejected_with_a_sentence() -> None:
    for wrong in (
        {"interval": 0.0},
        {"cold_start": -1.0},
        {"cold_start_spread": 2.0},
        {"pod_failures": 1.5},
        {"metrics_loss": -0.1},
        {"profile_error": -1.0},
    ):
        with pytest.raises(ValueError, match=r"."):
            settings(**wrong)


def test_a_pod_that_restarts_after_hours_counts_as_starting() -> None:
    chance = Chance(settings(cold_start=100.0))
    one = Pod("replica-1", 0.0, 100.0)
    one.die(7200.0, chance)
    view = one.view(7230.0, settings(), chance)
    assert (view.since, view.start_age) == (7200.0, 30.0)
    assert len(fleet_metrics(Observed(pods=(view,)), 5.0, 7230.0).starting) == 1
