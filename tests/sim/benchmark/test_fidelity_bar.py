"""The fidelity bars: 10 % of the median; of p99 15 %, or twice the spread of the engine's own runs.

The runs with the machine's measured slowness are shown and not judged."""

import pytest

from tests.bench.fidelity.measure import Compared

CALM, RESTLESS = (0.99, 1.0, 1.01), (0.9, 1.0, 1.1)


def compared(percentile: int, engine: tuple[float, ...], simulated: float, told: tuple[float, ...]) -> Compared:
    return Compared(0.8, "ttft", percentile, engine, (simulated / 2, simulated, 3 * simulated), told)


def bar(percentile: int, engine: tuple[float, ...]) -> float:
    return compared(percentile, engine, 1.0, engine).bar


def test_variable_runs_widen_the_bar_of_p99_and_not_of_the_median() -> None:
    assert (bar(50, CALM), bar(99, CALM)) == (0.10, 0.15)
    assert bar(50, RESTLESS) == 0.10
    assert bar(99, RESTLESS) == pytest.approx(0.4)


@pytest.mark.parametrize(("simulated", "met"), [(0.89, False), (0.91, True), (1.09, True), (1.11, False)])
@pytest.mark.parametrize("engine", [CALM, RESTLESS])
def test_only_the_profile_run_is_judged_by_the_bar(engine: tuple[float, ...], simulated: float, met: bool) -> None:
    assert compared(50, engine, simulated, told=engine).met is met


def test_the_drift_run_with_the_largest_error_is_shown() -> None:
    assert compared(50, (1.0, 2.0, 4.0), 2.0, told=(1.1, 1.5, 4.0)).told_apart == pytest.approx(0.25)
