"""Generated loads: pure in the seed, with the declared rates, batches, silences and lengths."""

import itertools
from statistics import median

import pytest

from sluice_sim.traces.generators import LengthRange, Stream, generated, rate_at

EQUAL = LengthRange(100)


def stream(**changes: object) -> Stream:
    return Stream(**({"rate": ((0.0, 10.0),), "prompt": EQUAL, "output": EQUAL} | changes))  # type: ignore[arg-type]


def test_a_load_is_a_function_of_its_seed() -> None:
    streams = (stream(), stream(on_off=(30.0, 30.0), tenant="huge"))
    assert generated(streams, 300.0, 1) == generated(streams, 300.0, 1)
    assert generated(streams, 300.0, 1) != generated(streams, 300.0, 2)


def test_a_stream_does_not_depend_on_the_streams_after_it() -> None:
    alone = generated((stream(),), 300.0, 0)
    assert [one for one in generated((stream(), stream(tenant="other")), 300.0, 0) if not one.tenant] == list(alone)


def test_arrivals_are_in_order_and_within_the_load() -> None:
    times = [one.at for one in generated((stream(batch=20.0),), 200.0, 0)]
    assert times == sorted(times)
    assert 0.0 <= times[0] <= times[-1] < 200.0


@pytest.mark.parametrize("batch", [1.0, 25.0])
def test_the_rate_counts_requests_whatever_the_batch(batch: float) -> None:
    assert len(generated((stream(batch=batch),), 4000.0, 0)) / 4000.0 == pytest.approx(10.0, rel=0.1)


def test_a_batch_arrives_at_once() -> None:
    times = [one.at for one in generated((stream(batch=50.0),), 4000.0, 0)]
    close = sum(after - before < 0.1 for before, after in itertools.pairwise(times))
    assert close / len(times) > 0.9


def test_a_rate_is_linear_between_its_points_and_constant_outside() -> None:
    rate = ((100.0, 2.0), (200.0, 6.0), (200.0, 10.0))
    assert [rate_at(rate, at) for at in (0.0, 100.0, 150.0, 200.0, 900.0)] == [2.0, 2.0, 4.0, 10.0, 10.0]


def test_a_ramp_has_its_requests_where_its_rate_is() -> None:
    times = [one.at for one in generated((stream(rate=((0.0, 0.0), (1000.0, 20.0))),), 1000.0, 0)]
    assert sum(at > 500.0 for at in times) / len(times) == pytest.approx(0.75, abs=0.02)


def test_a_stream_is_silent_while_it_is_off() -> None:
    times = [one.at for one in generated((stream(on_off=(50.0, 100.0)),), 30_000.0, 0)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert sum(gap for gap in gaps if gap > 3.0) / 30_000.0 == pytest.approx(2 / 3, abs=0.08)


def test_lengths_are_log_normal_and_bounded() -> None:
    found = [one.prompt for one in generated((stream(prompt=LengthRange(400, 1.8, 60_000)),), 1000.0, 0)]
    assert median(found) == pytest.approx(400, rel=0.05)
    assert 20_000 < max(found) <= 60_000
    assert {one.output for one in generated((stream(),), 100.0, 0)} == {100}
