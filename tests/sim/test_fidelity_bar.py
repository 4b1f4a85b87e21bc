"""What the fidelity gate allows: a fixed share, or twice what the engine's own runs differ by."""

import pytest

from tests.bench.fidelity.measure import Compared


@pytest.mark.parametrize(("percentile", "bar"), [(50, 0.10), (99, 0.15)])
def test_steady_runs_are_held_to_the_fixed_share_and_restless_ones_to_twice_their_own(
    percentile: int, bar: float
) -> None:
    steady = Compared(0.3, "ttft", percentile, (0.99, 1.0, 1.01), 1.0 + bar + 0.01)
    restless = Compared(0.8, "ttft", percentile, (0.9, 1.0, 1.1), 1.0 + bar + 0.01)
    assert (steady.bar, steady.met) == (bar, False)
    assert restless.met
    assert restless.bar == pytest.approx(0.4)
    assert not Compared(0.8, "ttft", percentile, (0.9, 1.0, 1.1), 1.41).met
