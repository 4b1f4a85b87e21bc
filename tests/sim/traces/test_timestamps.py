"""Loads with a time in milliseconds: plain CSV, plain JSON lines, and the workloads that AIBrix's generator writes."""

import json
from pathlib import Path

import pytest

from sluice_sim.traces import Arrival, BadTrace, Part, read_load, read_trace

HEADER = "timestamp_ms,input_tokens,output_tokens\n"
UNIX = 1_772_438_400_000  # 2026-03-02 08:00 UTC
AIBRIX: list[dict[str, object]] = [  # fields as in benchmarks/generator/workload_generator of vllm-project/aibrix
    {
        "timestamp": 0,
        "requests": [
            {"prompt": "a", "prompt_length": 101, "output_length": 20, "session_id": 0},
            {"prompt": "b", "prompt_length": 7, "output_length": None},
        ],
    },
    {"schema_version": "aibrix.agent-session.v1", "timestamp": 350, "requests": [], "events": [{"node_type": "tool"}]},
    {"timestamp": 1000, "requests": [{"Prompt Length": 909, "Output Length": 22, "prompt": "c", "model": "m"}]},
]


def write(folder: Path, content: str, name: str = "t.jsonl") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def jsonl(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def plain(at: object, prompt: object = 5, output: object = 6) -> dict[str, object]:
    return {"timestamp_ms": at, "input_tokens": prompt, "output_tokens": output}


def test_the_csv_and_the_json_lines_of_the_same_requests_are_the_same_trace(tmp_path: Path) -> None:
    expected = (Arrival(0.5, 10, 2), Arrival(1.25, 30, 4))
    assert read_trace(write(tmp_path, HEADER + "1250,30,4\n500,10,2\n", "t.csv")) == expected
    assert read_trace(write(tmp_path, jsonl(plain(1250, 30, 4), plain(500, 10, 2)))) == expected
    shuffled = "output_tokens,user,timestamp_ms,input_tokens\n2,x,500,10\n4,y,1250.0,30\n"
    assert read_trace(write(tmp_path, shuffled, "t.csv")) == expected


def test_a_part_of_the_trace_is_timed_from_its_start(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "".join(f"{second}000,5,5\n" for second in range(10)), "t.csv")
    assert [one.at for one in read_trace(path, Part(start=4, seconds=3))] == [0.0, 1.0, 2.0]


def test_times_since_1970_count_from_the_first_request_and_a_note_names_its_date(tmp_path: Path) -> None:
    load = read_load(write(tmp_path, jsonl(plain(UNIX + 2500), plain(UNIX))))
    assert [one.at for one in load.arrivals] == [0.0, 2.5]
    assert load.notes == ("times count from the first request, 2026-03-02 08:00:00 UTC in the file",)


@pytest.mark.parametrize("form", ["jsonl", "json", "indented"])
def test_an_aibrix_workload_sends_the_requests_of_a_timestamp_at_once(tmp_path: Path, form: str) -> None:
    content = jsonl(*AIBRIX) if form == "jsonl" else json.dumps(AIBRIX, indent=4 if form == "indented" else None)
    load = read_load(write(tmp_path, content))
    assert [(one.at, one.prompt) for one in load.arrivals] == [(0.0, 101), (0.0, 7), (1.0, 909)]
    assert [one.output for one in load.arrivals if one.prompt != 7] == [20, 22]
    assert load.notes == ("AIBrix: 1 of 3 requests have no output length: drawn with the mean of --output-tokens, 128",)


def test_missing_output_lengths_are_drawn_with_the_given_mean_by_seed(tmp_path: Path) -> None:
    requests = [{"prompt_length": 5, "output_length": length} for length in (None, 0) for _ in range(2000)]
    path = write(tmp_path, jsonl({"timestamp": 0, "requests": [*requests, {"prompt_length": 5}]}))
    found = [one.output for one in read_trace(path, Part(output_tokens=40.0))]
    assert min(found) >= 1 and sum(found) / len(found) == pytest.approx(40.0, rel=0.05)
    assert found == [one.output for one in read_trace(path, Part(output_tokens=40.0))]
    assert found != [one.output for one in read_trace(path, Part(output_tokens=40.0, seed=1))]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (HEADER + "1,2\n", "line 2: expected 3 columns, found 2"),
        (HEADER + "0,5,5\nsoon,5,5\n", "line 3, column timestamp_ms: expected milliseconds ≥ 0, found 'soon'"),
        (HEADER + "0,0,5\n", "line 2, column input_tokens: expected a whole number of tokens ≥ 1, found '0'"),
        (HEADER + "0,5,1.5\n", "line 2, column output_tokens: expected a whole number of tokens ≥ 1, found '1.5'"),
        (HEADER + f"0,5,5\n{UNIX},5,5\n", "line 3, column timestamp_ms: expected a time within a year of the first"),
        ("timestamp_ms,input_tokens\n0,5\n", "line 1: column output_tokens is missing; expected timestamp_ms,"),
        (jsonl(plain(0), plain(-1)), "line 2, field timestamp_ms: expected milliseconds ≥ 0, found '-1'"),
        (jsonl(plain(1e300)), "line 1, field timestamp_ms: expected milliseconds ≥ 0 and at most 4102444800000"),
        (jsonl(plain(0, "many")), "line 1, field input_tokens: expected a whole number of tokens ≥ 1, found"),
        (jsonl(plain(0, 5, None)), "line 1, field output_tokens: expected a whole number of tokens ≥ 1, found 'null'"),
        (jsonl({"timestamp": 0, "requests": 3}), "line 1, field requests: expected a list of requests, found '3'"),
        (jsonl({"requests": []}), "line 1, field timestamp: expected milliseconds ≥ 0, found 'null'"),
        (jsonl(*AIBRIX[:1], {"timestamp": 0, "requests": [{}, 7]}), "line 2, request 1, field prompt_length: expected"),
        (jsonl({"timestamp": 0, "requests": [7]}), "line 1, request 1: expected an object, found '7'"),
        (json.dumps([*AIBRIX, 7]), "entry 4: expected an object with timestamp and requests, found '7'"),
        ('[{"requests": [],}]', "line 1, column 18: expected JSON, found '}]'"),
        ("[\n" * 100_000, "line 1: expected JSON, found"),
        ("[]", "the selected part has no request"),
    ],
)
def test_a_bad_line_is_named_with_its_field_and_what_was_expected(tmp_path: Path, content: str, sentence: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(BadTrace) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: ") and sentence in str(caught.value)
