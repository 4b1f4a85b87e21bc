"""Reading an exposition costs time linear in it, stops at each bound, and gives what prometheus_client's parser gives."""

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sluice_operator.engines import text_format
from sluice_operator.engines.text_format import (
    KEPT_CHARACTERS,
    MAX_BYTES,
    MAX_LABELS,
    MAX_LINE_CHARACTERS,
    MAX_LINES,
    MAX_SERIES,
    BadExposition,
    Sample,
    TooLarge,
    read_samples,
)

ANY = ("sluice_",)


def read(text: str) -> list[Sample]:
    return list(read_samples(text, ANY))


def reference(text: str) -> list[Sample]:
    """The same samples by prometheus_client's parser."""
    return [
        Sample(sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(ANY)
    ]


def labels(count: int) -> str:
    return ",".join(f'label{number}="{number}"' for number in range(count))


VALUES = st.floats(min_value=-1e300, max_value=1e300)
LABEL_VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(st.tuples(LABEL_VALUES, LABEL_VALUES), VALUES, max_size=5), st.lists(VALUES, max_size=5))
def test_what_prometheus_client_writes_is_read_as_its_own_parser_reads_it(
    gauges: dict[tuple[str, str], float], observed: list[float]
) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("sluice_gauge", "help with \\ and\nlines", ["first", "second"], registry=registry)
    for (first, second), value in gauges.items():
        gauge.labels(first, second).set(value)
    Counter("sluice_requests", "a counter", ["outcome"], registry=registry).labels("stop").inc(3)
    histogram = Histogram("sluice_seconds", "a histogram", registry=registry)
    for value in observed:
        histogram.observe(value)
    Gauge("python_other", "of another", registry=registry)
    text = generate_latest(registry).decode()
    found = read(text)
    assert found == reference(text)
    assert len(found) >= len(gauges) + 15


PIECES = st.sampled_from(
    ["sluice_a", "{", "}", "{}", 'l="v"', 'l="\\"v\\n\\\\"', 'm="}"', 'm="', ",", " ", "\t", "1", "-2.5e3", "NaN", "=", "_", "\\"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=8))
def test_a_line_of_the_format_means_what_it_means_to_prometheus_client_and_any_other_is_refused(
    pieces: list[str],
) -> None:
    line = "sluice_" + "".join(pieces)
    try:
        found = read(line + "\n")
    except BadExposition:
        found = None
    assert found is None or repr(found) == repr(reference(line + "\n"))  # NaN included


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sluice_a 1", Sample("sluice_a", (), 1.0)),
        ("sluice_a{} 1 1700000000000", Sample("sluice_a", (), 1.0)),
        ('sluice_a { b = "1" , a="x\\\\\\"\\ny", } +Inf\r', Sample("sluice_a", (("a", 'x\\"\ny'), ("b", "1")), float("inf"))),
        ('sluice_a{a="one, two} {"}2', Sample("sluice_a", (("a", "one, two} {"),), 2.0)),
    ],
)  # fmt: skip
def test_lines_of_the_format(line: str, expected: Sample) -> None:
    assert read(line) == [expected]


@pytest.mark.parametrize(
    "line",
    ["sluice_a", "sluice_a{", 'sluice_a{a="b" 1', 'sluice_a{a="b"', 'sluice_a{a="b"c="d"} 1', 'sluice_a{a="1",a="2"} 1',
     "sluice_a{a=b} 1", "sluice_a-1", "sluice_a 1_0", "sluice_a 1 2 3", "sluice_a one", 'sluice_a{,a="b"} 1',
     'sluice_a{a="b\\"} 1'],
)  # fmt: skip
def test_other_lines_are_refused_by_their_number(line: str) -> None:
    with pytest.raises(BadExposition, match="line 2 is not in the Prometheus text format"):
        read(f"# a comment\n{line}\n")


def test_the_line_of_many_labels_that_took_twenty_seconds_is_refused() -> None:
    line = f"sluice_a{{{labels(100_000)}}} 1\n"
    assert len(line) > 1_700_000
    with pytest.raises(TooLarge, match=f"at most {MAX_BYTES} are read"):
        read(line)


@pytest.mark.parametrize(
    ("within", "words"),
    [
        ("\n" * MAX_LINES, f"at most {MAX_LINES} are read"),
        ("# " + "x" * (MAX_LINE_CHARACTERS - 1), f"line 1 has {MAX_LINE_CHARACTERS + 1} characters"),
        (f"sluice_a{{{labels(MAX_LABELS + 1)}}} 1", f"line 1 has more than {MAX_LABELS} labels"),
        ("sluice_a 1\n" * (MAX_SERIES + 1), f"more than {MAX_SERIES} series"),
    ],
    ids=["lines", "characters of a line", "labels", "series"],
)
def test_each_bound_is_named(within: str, words: str) -> None:
    with pytest.raises(TooLarge, match=words):
        read(within)


def test_series_that_come_again_are_read_once_and_very_long_ones_are_not_kept() -> None:
    short = [f'sluice_kept{{number="{number}"}}' for number in range(10)]
    long = f'sluice_long{{text="{"x" * KEPT_CHARACTERS}"}}'
    read("".join(f"{series} 1\n" for series in short))
    before = text_format._read_series.cache_info()
    found = read("".join(f"{series} {value}\n" for value, series in enumerate([*short, long])))
    after = text_format._read_series.cache_info()
    assert [sample.value for sample in found] == list(range(11))
    assert (after.misses, after.currsize) == (before.misses, before.currsize)


def test_a_text_at_every_bound_is_read() -> None:
    head = f"sluice_a{{{labels(MAX_LABELS)}}} 1\n"
    text = head * 100 + "sluice_b 1\n" * (MAX_SERIES - 100) + "\n" * (MAX_LINES - MAX_SERIES - 2)
    text += "#" + "x" * (MAX_LINE_CHARACTERS - 1)
    assert text.count("\n") + 1 == MAX_LINES - 1
    assert len(read(text)) == MAX_SERIES


def steps(text: str) -> int:
    """How many lines of the parser's own code run for a text."""
    ran = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal ran
        if frame.f_code.co_filename != text_format.__file__:
            return None
        ran += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        read(text)
    finally:
        sys.settrace(before)
    return ran


@pytest.mark.parametrize("scale", ["lines", "labels", "value"])
def test_twice_the_text_costs_at_most_twice_the_steps(scale: str) -> None:
    def text(size: int) -> str:
        if scale == "lines":
            return 'sluice_a{a="b"} 1\n' * size
        return f"sluice_a{{{labels(size)}}} 1\n" if scale == "labels" else f'sluice_a{{a="{"x" * size * 100}"}} 1\n'

    assert 0 < steps(text(8)) <= 2 * steps(text(4)) + 20
