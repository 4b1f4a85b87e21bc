"""Deltas between scrapes: totals that wrap around, counter resets, and deltas too short to be kept apart."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.histograms import BOUNDS
from sluice_operator.autoscaler.signals.scrape_deltas import FleetDelta, pod_delta, pod_totals
from sluice_operator.autoscaler.signals.windows import WindowSums, append
from sluice_operator.autoscaler.values import EngineSample, Histogram
from tests.operator.autoscaler.fleet import Engine

TARGET = 2.0  # seconds


def sample(requests: float, tokens: float) -> EngineSample:
    """Totals of an engine: all first tokens in the first bucket, all inter-token times in the third."""
    first = Histogram(BOUNDS, (requests,) * len(BOUNDS))
    itl = Histogram(BOUNDS, (0.0, 0.0) + (tokens,) * (len(BOUNDS) - 2))
    return replace(Engine().sample(), arrived_total=requests, generated_tokens_total=tokens, ttft=first, itl=itl)


def increase(begin: float, end: float, before: EngineSample, after: EngineSample) -> FleetDelta | None:
    return pod_delta(pod_totals("a", begin, before), pod_totals("a", end, after), 100.0, end, TARGET)


@given(st.integers(0, 2**50), st.integers(0, 2**31 - 1))
def test_buckets_are_exact_after_any_number_of_tokens(tokens: int, more: int) -> None:
    delta = increase(0.0, 5.0, sample(10.0, tokens), sample(12.0, tokens + more))
    assert delta is not None
    assert list(delta.itl) == [0.0, 0.0] + [more] * (len(BOUNDS) - 2)
    assert list(delta.ttft) == [2.0] * len(BOUNDS)


@pytest.mark.parametrize("after", [sample(9.0, 2e9), sample(11.0, 1e9 - 1), sample(0.0, 0.0)])
def test_a_total_that_falls_is_a_counter_reset(after: EngineSample) -> None:
    assert increase(0.0, 5.0, sample(10.0, 1e9), after) is None


@given(st.lists(st.floats(0.1, 12.0), min_size=1, max_size=60))
def test_short_deltas_are_merged_and_nothing_is_lost(gaps: list[float]) -> None:
    ends = [0.0, *itertools.accumulate(gaps)]
    deltas: tuple[FleetDelta, ...] = ()
    for begin, end in itertools.pairwise(ends):
        delta = increase(begin, end, sample(0.0, 0.0), sample(1.0, 8.0))
        assert delta is not None
        deltas = append(deltas, delta)
    window = WindowSums(deltas)
    assert window.count("arrived_total") == len(gaps)
    assert window.seconds == pytest.approx(ends[-1])
    begins = [delta.at - delta.seconds for delta in deltas]
    assert begins[1:] == pytest.approx([delta.at for delta in deltas[:-1]])
    assert all(later.at - begin > LAW.delta_seconds for later, begin in zip(deltas[1:], begins, strict=False))
