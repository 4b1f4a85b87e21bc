"""A run in equal intervals, as the plot draws it."""

import pytest

from sluice_sim.cluster.request import RequestRecord
from sluice_sim.results.run import Run
from sluice_sim.results.series import band, over_time


def test_requests_fall_into_the_piece_of_their_arrival() -> None:
    records = [
        RequestRecord(1.0, 1, 1, good=True),
        RequestRecord(4.0, 1, 1, refused=True),
        RequestRecord(12.0, 1, 1, good=True),
    ]
    seen = over_time(Run(records=records, seconds=20.0))
    assert seen.seconds == 5.0
    assert seen.at == (2.5, 7.5, 12.5, 17.5)
    assert seen.offered == (0.4, 0.0, 0.2, 0.0)
    assert seen.refused == (0.2, 0.0, 0.0, 0.0)
    assert seen.attainment == (0.5, None, 1.0, None)


def test_a_long_run_is_aggregated_into_a_bounded_number_of_intervals() -> None:
    assert len(over_time(Run(records=[], seconds=172_800.0)).at) == 240


def test_the_samples_of_one_interval_become_minimum_mean_and_maximum() -> None:
    seen = band([(0.0, 1.0), (4.0, 3.0), (21.0, 7.0)], 10.0)
    assert seen.at == (5.0, 25.0)
    assert (seen.low, seen.high) == ((1.0, 7.0), (3.0, 7.0))
    assert seen.mean == pytest.approx((2.0, 7.0))
