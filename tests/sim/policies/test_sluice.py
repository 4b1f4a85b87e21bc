"""Sluice's law on simulated fleets: a story over minutes."""

from dataclasses import replace

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.scenario import Settings
from sluice_sim.hardware.profiles import read_profile
from sluice_sim.policies.sluice import OURS
from sluice_sim.results.run import Run
from sluice_sim.traces import Arrival, poisson

SPEC = LLMDeploymentSpec.model_validate(
    {"model": {"uri": "file:///model"}, "scaling": {"minReplicas": 1, "maxReplicas": 20}}
)
PROFILE = read_profile("llama31-8b-a100-tp2")
SETTINGS = Settings(PROFILE.model, kv_tokens=PROFILE.kv_tokens or 1, mode="coarse", begin=1)


def run(*parts: tuple[float, float], settings: Settings = SETTINGS) -> Run:
    """(requests/s, seconds), one after the other: 1,000 prompt tokens, 200 output tokens."""
    arrivals: list[Arrival] = []
    begun = 0.0
    for seed, (rate, seconds) in enumerate(parts):
        arrivals += [replace(one, at=one.at + begun) for one in poisson(rate, seconds, 1000, 200, seed)]
        begun += seconds
    return Fleet(SPEC, settings, OURS).run(arrivals)


def count_at(run: Run, at: float) -> int:
    return next(count for time, count in reversed(run.desired) if time <= at)


def test_a_calm_load_keeps_one_replica() -> None:
    found = run((3.0, 900.0))
    assert {count for _, count in found.desired} == {1}
    assert all(one.good for one in found.records)


def test_a_step_is_followed_and_forgotten_after_its_memory() -> None:
    found = run((3.0, 600.0), (40.0, 600.0), (3.0, 2400.0))
    assert count_at(found, 590.0) == 1
    assert count_at(found, 720.0) >= 2, "a minute of it has lasted"
    after_start = [one for one in found.records if 800.0 <= one.arrived_at < 1200.0]
    assert sum(one.good for one in after_start) / len(after_start) > 0.99
    assert count_at(found, 1500.0) >= 2, "the quarter of an hour remembers it"
    assert count_at(found, 3590.0) == 1


def test_a_profile_that_is_too_fast_is_corrected_by_the_misses_that_come() -> None:
    plain, wrong = run((24.0, 1800.0)), run((24.0, 1800.0), settings=replace(SETTINGS, profile_error=0.3))
    late = [one for one in wrong.records if one.arrived_at >= 900.0]
    assert sum(one.good for one in late) / len(late) > 0.985
    assert count_at(wrong, 1700.0) >= count_at(plain, 1700.0)
