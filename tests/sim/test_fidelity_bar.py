"""What the fidelity gate allows: a tenth of the median; of p99 15 %, or twice what the engine's own runs differ by. Where
the machine was not the same in the three runs, the simulator that was told so must be as near to each."""

import pytest

from tests.bench.fidelity.measure import Compared

CALM, RESTLESS = (0.99, 1.0, 1.01), (0.9, 1.0, 1.1)


def compared(percentile: int, engine: tuple[float, ...], simulated: float, told: tuple[float, ...]) -> Compared:
    return Compared(0.8, "ttft", percentile, engine, simulated, told)


def bar(percentile: int, engine: tuple[float, ...]) -> float:
    return compared(percentile, engine, 1.0, engine).bar


def test_restless_runs_widen_the_bar_of_p99_and_not_of_the_median() -> None:
    assert (bar(50, CALM), bar(99, CALM)) == (0.10, 0.15)
    assert bar(50, RESTLESS) == 0.10
    assert bar(99, RESTLESS) == pytest.approx(0.4)


@pytest.mark.parametrize(("simulated", "met"), [(0.89, False), (0.91, True), (1.09, True), (1.11, False)])
def test_in_calm_runs_only_the_profile_counts(simulated: float, met: bool) -> None:
    assert compared(50, CALM, simulated, CALM).met is met


@pytest.mark.parametrize(
    ("told", "met"), [((0.82, 1.09, 1.2), True), ((0.9, 1.0, 1.22), False), ((0.8, 1.0, 1.1), False)]
)
def test_in_restless_runs_what_was_told_must_be_near_to_every_single_run(told: tuple[float, ...], met: bool) -> None:
    assert compared(50, RESTLESS, 1.3, told).met is met


def test_in_restless_runs_a_profile_that_is_near_all_the_same_has_met_its_bar() -> None:
    assert compared(50, RESTLESS, 1.05, (2.0, 2.0, 2.0)).met
