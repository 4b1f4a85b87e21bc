"""Reading traces: parsed values, and errors of bad lines."""

import gzip
from pathlib import Path

import pytest

from sluice_sim.hardware.profiles import BadProfile, parse_profile
from sluice_sim.traces import Arrival, BadTrace, Part, poisson, read_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = HEADER + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_azure_arrivals_are_timed_from_the_first_line(tmp_path: Path) -> None:
    first, second = read_trace(write(tmp_path, GOOD))
    assert first == Arrival(0.0, 374, 44)
    assert second.at == pytest.approx(4.314579)


def test_a_gzip_trace_reads_the_same_and_can_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(GOOD.encode()))
    assert len(read_trace(path)) == 2
    assert len(read_trace(path, Part(seconds=4.0))) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n", "line 1: column TIMESTAMP is missing; expected TIMESTAMP,ContextTokens,GeneratedTokens"),
        (HEADER, "has no request"),
        (HEADER + "yesterday,1,2\n", "line 2, column TIMESTAMP: expected a time like"),
        (GOOD + "2023-11-16 18:16:00,x,2\n", "line 4, column ContextTokens: expected a whole number of tokens ≥ 1"),
        (GOOD + "2023-11-16 18:16:00,5,0\n", "line 4, column GeneratedTokens"),
        (GOOD + "2023-11-16 18:16:00,5,-3\n", "found '-3'"),
        (GOOD + "2023-11-16 18:16:00,5\n", "line 4: expected 3 columns, found 2"),
        (GOOD + "2023-11-16 18:00:00,5,5\n", "expected times in order"),
        (GOOD + "2023-11-16T18:16:00+00:00,5,5\n", "a time zone on all lines or on none"),
    ],
)
def test_a_bad_line_is_named_with_its_column_and_what_was_expected(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadTrace) as caught:
        read_trace(write(tmp_path, text))
    assert sentence in str(caught.value)


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    for name, content in (("a.csv", b"\xff\xfe\x00"), ("b.csv.gz", b"no gzip"), ("c.csv.gz", gzip.compress(b"x")[:9])):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(BadTrace, match="is no trace in text"):
            read_trace(path)


def test_generated_arrivals_depend_on_the_seed_alone() -> None:
    assert poisson(2.0, 60, 100, 50, seed=1) == poisson(2.0, 60, 100, 50, seed=1)
    assert poisson(2.0, 60, 100, 50, seed=1) != poisson(2.0, 60, 100, 50, seed=2)


def test_a_profile_is_parsed_term_by_term_and_a_bad_one_is_reported() -> None:
    assert parse_profile("base=0.03, sequence=0.004").sequence == 0.004
    for text, sentence in (
        ("base=0.03,speed=1", "not 'speed=1'"),
        ("base=fast", "must be seconds, not 'fast'"),
        ("base=-1", "must be 0 or more"),
        ("sequence=0.1", "base must be above 0"),
        ("base=1,base=2", "given twice"),
    ):
        with pytest.raises(BadProfile, match=sentence):
            parse_profile(text)
