"""Stop strings: found across any split, never partly emitted, nothing else held for good."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.text import StopScanner


def test_a_stop_string_split_over_three_feeds_is_found_and_not_emitted() -> None:
    scanner = StopScanner(("END",))
    assert [scanner.feed(text) for text in ("one E", "N", "D two")] == ["one ", "", ""]
    assert scanner.stopped


def test_text_that_only_begins_like_a_stop_string_is_emitted() -> None:
    scanner = StopScanner(("END",))
    assert scanner.feed("EN") == ""
    assert scanner.feed("TER") == "ENTER"
    assert scanner.feed(" E") == " "
    assert scanner.flush() == "E"


def test_the_earliest_of_several_stop_strings_ends_the_text() -> None:
    scanner = StopScanner(("later", "now"))
    assert scanner.feed("here and now and later") == "here and "


@given(
    text=st.text("ab", max_size=40),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 40), max_size=10),
)
def test_any_split_of_the_text_emits_the_same(text: str, stops: list[str], cuts: list[int]) -> None:
    scanner = StopScanner(tuple(stops))
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    emitted = "".join(scanner.feed(text[a:b]) for a, b in pairwise(edges))
    if not scanner.stopped:
        emitted += scanner.flush()
    ends = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    end, _, stop = min(ends, default=(len(text), 0, ""))  # the first complete one; with the same end, the longest
    assert emitted == text[: end - len(stop)]
    assert (scanner.stopped, scanner.matched) == (bool(ends), stop or None)


def test_many_stop_strings_that_begin_alike_are_told_apart() -> None:
    start = "ab" * 200
    scanner = StopScanner([f"{start}{place}" for place in range(10, 74)])
    assert sum(len(scanner.feed("ab" * 10)) for _ in range(100)) == 100 * 20 - len(start)  # the rest may begin one
    assert scanner.feed("9 or ") == f"{start}9 or "
    assert scanner.feed(f"{start}73 after") == "" and scanner.matched == f"{start}73"
