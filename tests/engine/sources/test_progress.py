"""The words of a download's progress: size, share and time left, from the rate of the last half minute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.sources.progress import Progress, Rate, progress_text, size_text, time_text

GB = 10**9


def test_a_status_reads_as_the_design_says() -> None:
    assert progress_text(Progress(int(6.8 * GB), int(16.1 * GB)), 170.0) == "42 % of 16.1 GB, 3 min left"
    assert progress_text(Progress(0, 16 * GB), None) == "0 % of 16.0 GB"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_500_000, "1.5 MB"), (2 * 10**12, "2.0 TB")]
)
def test_sizes_are_decimal(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1 s"), (60.0, "60 s"), (61.0, "2 min"), (3601.0, "2 h")])
def test_times_are_rounded_up(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    rate = Rate()
    assert rate.seconds_left(Progress(0, 1000), 0.0) is None
    left = [
        rate.seconds_left(Progress(min(second, 60) + 9 * max(second - 60, 0), 1000), float(second))
        for second in range(1, 101)
    ]
    assert left[10] == pytest.approx(1000 - 11, rel=0.01)
    assert left[-1] == pytest.approx((1000 - 60 - 9 * 40) / 9, rel=0.05)
    assert rate.seconds_left(Progress(1000, 1000), 101.0) == 0.0
    assert rate.seconds_left(Progress(500, 1000), 102.0) is None, "a discarded file begins a new rate"


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 10**6)), min_size=1, max_size=30), st.integers(1, 10**9))
def test_a_time_left_is_never_negative(steps: list[tuple[float, int]], total: int) -> None:
    rate, now, received = Rate(), 0.0, 0
    for waited, more in steps:
        now, received = now + waited, min(received + more, total)
        left = rate.seconds_left(Progress(received, total), now)
        assert left is None or left >= 0
