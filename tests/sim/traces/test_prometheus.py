"""Prometheus' answers to range queries over the engines' metrics, as a load."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sluice import contract
from sluice_sim.traces import BadTrace, Part, read_load, read_trace

BEGIN = 1_772_438_400
ARRIVED, PROMPT, OUTPUT = contract.REQUESTS_ARRIVED, contract.PROMPT_TOKENS_TOTAL, contract.GENERATED_TOKENS
SCHEDULED = f"{contract.QUEUE_SECONDS}_count"


def counter(name: str, values: list[float], pod: str = "a", begin: int = 0) -> dict[str, Any]:
    """A series as Prometheus writes it, one sample per minute."""
    return {
        "metric": {"__name__": name, "pod": pod},
        "values": [[BEGIN + 60 * (begin + step), f"{value:.10g}"] for step, value in enumerate(values)],
    }


def rate(kind: str, values: list[float]) -> dict[str, Any]:
    """A rate without a name, labelled by label_replace."""
    return {"metric": {"load": kind}, "values": [[BEGIN + 60 * step, str(one)] for step, one in enumerate(values)]}


def answer(*series: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(series)}}


def write(folder: Path, *answers: object, indent: int | None = None, end: str = "\n") -> Path:
    path = folder / "load.json"
    path.write_text("".join(json.dumps(one, indent=indent) + end for one in answers), encoding="utf-8")
    return path


def per_minute(path: Path, minutes: int, part: Part | None = None) -> list[int]:
    found = read_trace(path, part)
    return [sum(60 * minute <= one.at < 60 * (minute + 1) for one in found) for minute in range(minutes)]


STEADY = (counter(ARRIVED, [7e6, 7e6 + 600, 7e6 + 1200, 7e6 + 1200]), counter(PROMPT, [0, 3e5, 6e5, 6e5]),
          counter(OUTPUT, [5, 60_005, 120_005, 120_005]))  # fmt: skip


def test_counters_become_poisson_arrivals_of_the_measured_rates_and_lengths(tmp_path: Path) -> None:
    path = write(tmp_path, answer(*STEADY))
    load = read_load(path)
    found = tuple(load.arrivals)
    assert per_minute(path, 4) == [pytest.approx(600, abs=75), pytest.approx(600, abs=75), 0, 0]
    assert sum(one.prompt for one in found) / len(found) == pytest.approx(500, rel=0.1)
    assert sum(one.output for one in found) / len(found) == pytest.approx(100, rel=0.1)
    assert len({one.prompt for one in found}) > 200 and min(one.output for one in found) >= 1
    gaps = [after.at - before.at for before, after in pairwise(found)]
    mean = sum(gaps) / len(gaps)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(mean**2, rel=0.2)  # exponential
    assert load.notes[0].startswith("Prometheus: 3 series of counters, step 60 s: Poisson arrivals at each step's rate")
    assert load.notes[1] == "measured means: 6.67 requests/s, prompts of 500 and outputs of 100 tokens"
    assert SCHEDULED in load.notes[2]


def test_the_seed_alone_determines_the_draw(tmp_path: Path) -> None:
    path = write(tmp_path, answer(*STEADY))
    golden = [(0.057, 303, 178), (0.077, 513, 120), (0.144, 93, 4)]
    assert [(round(one.at, 3), one.prompt, one.output) for one in read_trace(path)[:3]] == golden
    assert read_trace(path) == read_trace(path) != read_trace(path, Part(seed=1))


@pytest.mark.parametrize(("indent", "end"), [(None, ""), (None, "\n"), (2, "\n")])
def test_one_answer_per_series_in_one_file_reads_as_one_answer_with_all(
    tmp_path: Path, indent: int | None, end: str
) -> None:
    together = read_trace(write(tmp_path, answer(*STEADY)))
    assert read_trace(write(tmp_path, *(answer(one) for one in STEADY), indent=indent, end=end)) == together
    assert read_trace(write(tmp_path, list(STEADY), indent=indent)) == together  # promtool query range -o json


def test_consecutive_ranges_of_the_same_series_are_joined(tmp_path: Path) -> None:
    halves = [[one | {"values": one["values"][part]} for one in STEADY] for part in (slice(2), slice(2, 4))]
    joined = read_trace(write(tmp_path, *(answer(*half) for half in halves)))
    assert joined == read_trace(write(tmp_path, answer(*STEADY)))


def test_rates_with_the_label_load_cover_the_step_that_ends_at_their_sample(tmp_path: Path) -> None:
    rates = (rate("requests", [0, 10.5, 0]), rate("prompt_tokens", [0, 1050, 0]), rate("output_tokens", [0, 210.0, 0]))
    path = write(tmp_path, answer(*rates))
    assert per_minute(path, 3) == [0, pytest.approx(630, abs=80), 0]
    assert read_load(path).notes[1] == "measured means: 3.5 requests/s, prompts of 100 and outputs of 20 tokens"


def test_named_series_with_fractions_are_rates(tmp_path: Path) -> None:
    path = write(tmp_path, answer(counter(ARRIVED, [9.5, 9.5]), counter(PROMPT, [95, 95]), counter(OUTPUT, [19, 19])))
    assert per_minute(path, 2) == [pytest.approx(570, abs=75)] * 2
    assert "series of rates" in read_load(path).notes[0]


def test_pods_add_up_a_reset_and_a_new_pod_begin_at_zero_and_a_gap_is_spread(tmp_path: Path) -> None:
    """Minutes 1 to 4: pod a 600, reset to 300, 600, 600 (one increase of 1,200 over two minutes); pod b 300 in minute 2,
    where it begins."""
    gap = counter(ARRIVED, [6000, 6600, 300, 0, 1500])
    del gap["values"][3]
    tokens = [counter(name, [0, 1e5, 2e5, 3e5, 4e5]) for name in (PROMPT, OUTPUT)]
    path = write(tmp_path, answer(gap, counter(ARRIVED, [300, 300, 300], "b", begin=2), *tokens))
    assert per_minute(path, 4) == [pytest.approx(600, abs=75)] * 4


def test_lengths_are_per_scheduled_request_where_that_counter_is_in_the_file(tmp_path: Path) -> None:
    """Half of the requests were rejected: their lengths are those of the others."""
    load = read_load(write(tmp_path, answer(*STEADY, counter(SCHEDULED, [0, 300, 600, 600]))))
    assert load.notes[1:] == ("measured means: 6.67 requests/s, prompts of 1000 and outputs of 200 tokens",)
    found = tuple(load.arrivals)
    assert sum(one.prompt for one in found) / len(found) == pytest.approx(1000, rel=0.1)


def test_tokens_of_a_step_without_requests_belong_to_the_requests_before_it(tmp_path: Path) -> None:
    series = (counter(ARRIVED, [0, 900, 900]), counter(PROMPT, [0, 90_000, 90_000]), counter(OUTPUT, [0, 9e4, 18e4]))
    found = read_trace(write(tmp_path, answer(*series)))
    assert sum(one.output for one in found) / len(found) == pytest.approx(200, rel=0.1)


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ([{"status": "error", "error": "bad_data: parse error"}], "field status: expected success, found '\"bad_data"),
        (
            [{"status": "success", "data": {"resultType": "vector", "result": []}}],
            "field resultType: expected matrix (of query_range), found '\"vector\"'",
        ),
        ([{"status": "success", "data": 5}], "field resultType: expected matrix"),
        ([{"status": "success", "data": {"resultType": "matrix"}}], "field result: expected a list of series"),
        ([answer(*STEADY[:2])], f"expected a series with __name__ {OUTPUT} or load=output_tokens, found none"),
        ([answer()], f"expected a series with __name__ {ARRIVED} or load=requests, found none"),
        ([answer(*STEADY, {"metric": {}, "values": []})], f"result 4, field metric: expected __name__ {ARRIVED}, "),
        ([answer({"metric": 3})], "result 1, field metric: expected labels, found '3'"),
        ([answer(counter(ARRIVED, [1]) | {"values": "x"})], "result 1, field values: expected a list of [seconds, val"),
        (
            [answer(counter(ARRIVED, [1]) | {"values": [[BEGIN, "1"], [BEGIN, "NaN"]]})],
            'result 1, value 2: expected [seconds, "number ≥ 0"], found',
        ),
        ([answer(*(counter(name, [5]) for name in (ARRIVED, PROMPT, OUTPUT)))], "expected two samples or more"),
        ([answer(*(counter(name, [5, 5]) for name in (ARRIVED, PROMPT, OUTPUT)))], "no request arrived in the range"),
        (
            [answer(*(counter(name, [0, 10**9]) for name in (ARRIVED, PROMPT, OUTPUT)))],
            "expected at most 10000 requests per second, found 1.66667e+07",
        ),
        (
            [answer(*STEADY), answer(counter(ARRIVED, [1], begin=10**6))],
            "expected a range of a year and 1000000 steps at most",
        ),
    ],
)
def test_a_bad_answer_is_named_with_what_was_expected(tmp_path: Path, answers: list[object], sentence: str) -> None:
    path = write(tmp_path, *answers)
    with pytest.raises(BadTrace) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: ") and sentence in str(caught.value)


def test_a_truncated_answer_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "load.json"
    path.write_text(json.dumps(answer(*STEADY), indent=1)[:300], encoding="utf-8")
    with pytest.raises(BadTrace, match=r"line \d+, column \d+: expected JSON, found"):
        read_trace(path)


def test_a_rate_beside_measured_rates_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="a rate was given, but this trace has arrival times"):
        read_trace(write(tmp_path, answer(*STEADY)), Part(rate=1.0))
