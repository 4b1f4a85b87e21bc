"""Malformed traces: each gives one sentence with file and line at once, never a traceback or an endless run."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_sim.traces import Arrival, BadTrace, Part, read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
RATES = "client,t_s,rate_rps,arrival,arg1\n"
VIDUR = "num_prefill_tokens,num_decode_tokens\n30,4\n"
LENGTHS = '{"client": 7, "t_s": 0, "input_tokens": {"100": 1}, "output_tokens": {"10": 1}}\n'
DEEP = "[" * 100_000


def record(arrival: object, **others: object) -> str:
    return json.dumps({"arrival": arrival, "input_tokens": 5, "output_tokens": 5} | others) + "\n"


def mooncake(timestamp: object, **others: object) -> str:
    return json.dumps({"timestamp": timestamp, "input_length": 5, "output_length": 5} | others) + "\n"


def refused(folder: Path, content: str | bytes, lengths: str | None = None, name: str = "t.csv") -> str:
    path, other = folder / name, folder / "lengths.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if lengths is not None:
        other.write_text(lengths, encoding="utf-8")
    with pytest.raises(BadTrace) as caught:
        read_trace(path, Part(lengths=None if lengths is None else other))
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (record(1) + record(1_700_000_000.5), "line 2, field arrival: expected seconds ≥ 0 and at most 31622400"),
        (record(1e300), "line 1, field arrival: expected seconds ≥ 0 and at most 31622400, found '1e+300'"),
        (record(10**400), "line 1, field arrival: expected seconds ≥ 0 and at most 31622400, found '1000"),
        (record(1) + f'{{"arrival": {"9" * 9000}}}\n', "line 2: expected a JSON object"),
        (record(float("nan")), "line 1, field arrival: expected seconds ≥ 0, found 'NaN'"),
        (mooncake(1_700_000_000_000), "line 1, field timestamp: expected milliseconds ≥ 0 and at most 31622400000"),
        (AZURE + "0001-01-01,1,1\n9999-12-31,1,1\n", "line 3, column TIMESTAMP: expected a time within a year"),
        (record(300_000), "it has no request from 0 s to 300000 s: expected one in three days at least"),
        (AZURE + "2023-11-01,1,1\n2023-11-02,1,1\n2023-12-02,1,1\n", "it has no request from 86400 s to 2678400 s"),
        (record(1) + DEEP + "\n", "line 2: expected a JSON object, found '[[["),
        (record(1) + f'{{"arrival": {DEEP}', "line 2: expected a JSON object"),
        (record(json.loads("[" * 500 + "]" * 500)), "line 1, field arrival: expected seconds ≥ 0, found '[[["),
        (mooncake(0, hash_ids=[10**60] * 9000), "line 1, field hash_ids: expected a list of whole numbers"),
        (AZURE + "2023-11-01," + "9" * 200_000 + ",1\n", "line 2: expected columns of a CSV, found that field larger"),
        ("x" * 200_000 + "\n", "line 1: expected columns of a CSV, found that field larger"),
    ],
)
def test_an_oversized_number_or_line_is_reported_with_its_place(tmp_path: Path, content: str, sentence: str) -> None:
    said = refused(tmp_path, content)
    assert said.startswith(f"{tmp_path}/t.csv: ")
    assert sentence in said
    assert len(said) < 400


@pytest.mark.parametrize(
    ("rates", "lengths", "sentence"),
    [
        ("7,1e300,1,Gamma,1", LENGTHS, "t.csv: line 2, column t_s: expected seconds ≥ 0 and at most 31622400"),
        ("7,0,1e12,Gamma,1", LENGTHS, "t.csv: line 2, column rate_rps: expected requests per second ≥ 0 and at most"),
        ("7,0,1,Weibull,1e-9", LENGTHS, "t.csv: line 2, column arg1: expected a shape > 0, 0.01 or more, found '1e-9'"),
        ("7,0,1,Gamma,inf", LENGTHS, "t.csv: line 2, column arg1: expected a shape ≥ 0 and at most 1000000"),
        ("8,0,1,Gamma,1", LENGTHS, "t.csv: no client with known lengths has requests between 0 s and 600 s"),
        ("7,0,1,Gamma,1", LENGTHS.replace("0,", "1e300,"), "lengths.jsonl: line 1, field t_s: expected seconds ≥ 0"),
        ("7,0,1,Gamma,1", LENGTHS.replace("7", "null"), "lengths.jsonl: line 1, field client: expected a name or a"),
        ("7,0,1,Gamma,1", LENGTHS + DEEP, "lengths.jsonl: line 2: expected a JSON object"),
        ("7,0,1,Gamma,1", LENGTHS.replace('{"10": 1}', '{"10": 1e308}'), "field 10: expected a probability in output"),
    ],
)
def test_an_error_names_the_faulty_one_of_servegens_two_files_once(
    tmp_path: Path, rates: str, lengths: str, sentence: str
) -> None:
    said = refused(tmp_path, RATES + rates + "\n", lengths)
    assert sentence in said
    assert said.count(str(tmp_path)) == 1


@pytest.mark.parametrize("packed", [False, True])
def test_a_byte_that_is_no_utf_8_is_found_on_its_line(tmp_path: Path, packed: bool) -> None:
    content = AZURE.encode() + b"2023-11-01,1,1\n" * 3000 + b"2023-11-01,\xff,1\n"
    said = refused(tmp_path, gzip.compress(content) if packed else content, name="t.csv.gz" if packed else "t.csv")
    assert "line 3002 is no trace in text: expected UTF-8, found the byte 0xff" in said


@pytest.mark.parametrize("content", [AZURE + "2023-11-01 10:00:00,5,5\n", record(0)])
def test_a_byte_order_mark_is_skipped(tmp_path: Path, content: str) -> None:
    for name in ("t.csv", "t.csv.gz"):
        marked = b"\xef\xbb\xbf" + content.encode()
        (tmp_path / name).write_bytes(gzip.compress(marked) if name.endswith(".gz") else marked)
        assert read_trace(tmp_path / name) == (Arrival(0.0, 5, 5),)


@pytest.mark.parametrize("content", [AZURE + "2023-11-01,1,1\n", record(0), mooncake(0), VIDUR])
def test_a_lengths_file_is_rejected_for_a_trace_with_lengths(tmp_path: Path, content: str) -> None:
    said = refused(tmp_path, content, lengths=LENGTHS)
    assert "a file of lengths was given, but this trace has request lengths: leave it out" in said


def test_a_trace_may_have_a_weekend_without_requests(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(record(0) + record(3 * 86_400), encoding="utf-8")
    assert [one.at for one in read_trace(tmp_path / "t.jsonl")] == [0.0, 259_200.0]


ODD = st.one_of(
    st.floats(),
    st.integers(),
    st.text(max_size=5),
    st.none(),
    st.booleans(),
    st.recursive(st.integers(0, 3), lambda one: st.lists(one, max_size=3), max_leaves=5),
)
FIELDS = st.sampled_from(
    ["arrival", "input_tokens", "output_tokens", "timestamp", "input_length", "output_length", "hash_ids"]
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.dictionaries(FIELDS, ODD, max_size=4), min_size=1, max_size=4), end=st.binary(max_size=6))
def test_any_file_gives_ordered_arrivals_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]], end: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.jsonl"
    usual = json.loads(record(0)) | json.loads(mooncake(0))
    path.write_bytes("".join(json.dumps(usual | row) + "\n" for row in rows).encode() + end)
    try:
        times = [one.at for one in read_trace(path)]
    except BadTrace as error:
        assert str(error).startswith(f"{path}: ")
    else:
        assert times == sorted(times) and times[0] >= 0 and times[-1] < 366 * 86_400 + 3


def check(path: Path) -> None:
    """The file gives ordered arrivals or one sentence with its name."""
    try:
        times = [one.at for one in read_trace(path)]
    except BadTrace as error:
        assert str(error).startswith(f"{path}: ")
    else:
        assert times == sorted(times) and times[0] >= 0


@settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(st.dictionaries(st.sampled_from(["prompt_length", "Output Length"]), ODD), max_size=3),
    row=st.dictionaries(st.sampled_from(["timestamp", "requests"]), ODD, max_size=1),
    whole=st.booleans(),
)
def test_any_aibrix_workload_gives_ordered_arrivals_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, requests: list[object], row: dict[str, object], whole: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "odd-aibrix.json"
    usual = {"timestamp": 5, "requests": [{"prompt_length": 3, "output_length": 4}, *requests]}
    path.write_text(json.dumps([usual, row] if whole else usual) + "\n" + json.dumps(row) * (not whole), "utf-8")
    check(path)


NAMES = st.sampled_from(
    ["sluice_requests_arrived_total", "sluice_prompt_tokens_total", "sluice_generated_tokens_total"]
)
SAMPLE = st.one_of(ODD, st.tuples(st.integers(0, 9), st.integers(0, 99).map(str)), st.tuples(ODD, ODD))


@settings(max_examples=100, deadline=None)
@given(
    odd=st.lists(st.tuples(NAMES, st.lists(SAMPLE, max_size=3)), max_size=2),
    large=st.floats(0, 1e308),
    data=st.dictionaries(st.sampled_from(["resultType", "result"]), ODD, max_size=1),
)
def test_any_answer_of_prometheus_gives_ordered_arrivals_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, odd: list[tuple[str, list[object]]], large: float, data: dict[str, object]
) -> None:
    path = tmp_path_factory.getbasetemp() / "odd-prometheus.json"
    usual = [
        {"metric": {"__name__": name}, "values": [[0, "0"], [60, value]]}
        for name, value in (
            ("sluice_requests_arrived_total", "30"),
            ("sluice_prompt_tokens_total", str(large)),
            ("sluice_generated_tokens_total", "300"),
        )
    ]
    series = [*usual, *({"metric": {"__name__": name, "pod": "b"}, "values": values} for name, values in odd)]
    path.write_text(json.dumps({"data": {"resultType": "matrix", "result": series} | data}), encoding="utf-8")
    check(path)
