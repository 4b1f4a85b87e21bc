"""What the fidelity gate allows: a tenth of the median; of p99 15 %, or twice what the engine's own runs differ by."""

import pytest

from tests.bench.fidelity.measure import Compared


def bar(percentile: int, *engine: float) -> float:
    return Compared(0.8, "ttft", percentile, engine, 1.0).bar


def test_restless_runs_widen_the_bar_of_p99_and_not_of_the_median() -> None:
    assert (bar(50, 0.99, 1.0, 1.01), bar(99, 0.99, 1.0, 1.01)) == (0.10, 0.15)
    assert bar(50, 0.9, 1.0, 1.1) == 0.10
    assert bar(99, 0.9, 1.0, 1.1) == pytest.approx(0.4)


def test_a_prediction_beyond_the_bar_is_missed() -> None:
    met = [Compared(0.3, "itl", 50, (0.99, 1.0, 1.01), simulated).met for simulated in (0.89, 0.91, 1.09, 1.11)]
    assert met == [False, True, True, False]
