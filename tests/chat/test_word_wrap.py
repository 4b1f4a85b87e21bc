"""Streamed text is wrapped at words, wherever its pieces end."""

import itertools
import re

import pyte
from hypothesis import given
from hypothesis import strategies as st

from sluice.chat.word_wrap import WordWrap

WIDTH = 12
TEXT = st.text(alphabet="ab,日 \n", max_size=80)


def wrapped(pieces: list[str], width: int = WIDTH) -> str:
    wrap = WordWrap(lambda: width)
    return "".join(map(wrap.feed, pieces)) + wrap.end()


@given(TEXT, st.lists(st.integers(0, 80)))
def test_the_pieces_of_the_stream_make_no_difference(text: str, cuts: list[int]) -> None:
    ends = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[start:end] for start, end in itertools.pairwise(ends)]
    assert wrapped(pieces) == wrapped([text])


@given(TEXT)
def test_only_blanks_change(text: str) -> None:
    assert re.sub(r"\s", "", wrapped([text])) == re.sub(r"\s", "", text)


@given(st.lists(st.text("ab", min_size=1, max_size=WIDTH), max_size=30))
def test_no_word_that_fits_into_a_line_is_cut_at_the_edge_of_the_terminal(words: list[str]) -> None:
    screen = pyte.Screen(WIDTH, 40)
    pyte.Stream(screen).feed(wrapped([" ".join(words)]).replace("\n", "\r\n"))
    assert "\n".join(screen.display).split() == words


def test_a_word_that_does_not_fit_begins_a_line_without_the_blank_before_it() -> None:
    assert wrapped(["one two thr", "ee four"]) == "one two\nthree four"


def test_a_word_longer_than_a_line_is_left_whole_and_the_text_goes_on_after_it() -> None:
    assert wrapped(["at aaaaaaaaaaaaaaaaaaaaaa bb cc"]) == "at\naaaaaaaaaaaaaaaaaaaaaa\nbb cc"


def test_indentation_and_empty_lines_stay() -> None:
    assert wrapped(["a\n\n    b\n\tc"]) == "a\n\n    b\n        c"


def test_a_word_is_shown_as_soon_as_the_next_begins() -> None:
    wrap = WordWrap(lambda: WIDTH)
    assert [wrap.feed("one"), wrap.feed(" "), wrap.feed("two"), wrap.end()] == ["", "one", "", " two"]


def test_a_new_width_of_the_terminal_counts_from_the_next_word() -> None:
    widths = iter([WIDTH, WIDTH, 5, 5])
    wrap = WordWrap(lambda: next(widths))
    assert wrap.feed("one two three four") + wrap.end() == "one two\nthree\nfour"


def test_the_model_cannot_control_the_terminal() -> None:
    assert wrapped(["a\x1b[2Jb\r\n\x07c\x9b1m"]) == "a[2Jb\nc1m"
