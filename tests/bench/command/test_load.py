"""Loads are validated at construction, and one seed gives one load."""

import itertools

import pytest

from sluice.bench import BenchError, Load, Prompt
from sluice.bench.report import percentiles

PROMPTS = tuple(Prompt(str(number)) for number in range(10))
GOOD: dict[str, object] = {"url": "http://x", "prompts": PROMPTS, "concurrency": 1, "requests": 1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rate": 1.0}, "either a rate or a concurrency"),
        ({"concurrency": None}, "either a rate or a concurrency"),
        ({"requests": None}, "requests or a duration"),
        ({"prompts": ()}, "no prompts"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": None, "rate": 0.0}, "rate"),
        ({"concurrency": None, "rate": float("nan")}, "rate"),
        ({"requests": 0}, "requests"),
        ({"duration": -1.0}, "duration"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"retries": -1}, "retries"),
        ({"url": "localhost:8000"}, "http://"),
    ],
)
def test_a_load_that_cannot_be_run_is_refused_with_a_sentence(change: dict[str, object], says: str) -> None:
    with pytest.raises(BenchError, match=says):
        Load(**{**GOOD, **change})  # type: ignore[arg-type]


def test_every_prompt_is_asked_once_before_any_is_asked_again() -> None:
    load = Load(url="http://x", prompts=PROMPTS, concurrency=1, requests=30)
    for lap in range(3):
        assert {load.prompt(lap * 10 + place).text for place in range(10)} == {prompt.text for prompt in PROMPTS}
    assert [load.prompt(n) for n in range(10)] != [load.prompt(n) for n in range(10, 20)]


def test_arrivals_are_poisson_by_seed_and_end_with_the_duration() -> None:
    load = Load(url="http://x", prompts=PROMPTS, rate=50.0, duration=100.0, seed=1)
    times = list(load.arrivals())
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert times == list(load.arrivals())
    assert max(times) < 100.0
    assert mean == pytest.approx(1 / 50, rel=0.05)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(mean**2, rel=0.1)


def test_percentiles_are_nearest_rank() -> None:
    found = percentiles([number / 1000 for number in range(100, 0, -1)])
    assert (found.p50, found.p95, found.p99) == (50.0, 95.0, 99.0)
    assert percentiles([]).p99 is None
