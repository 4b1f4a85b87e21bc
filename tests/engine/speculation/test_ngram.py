"""Prompt lookup: the tokens after the latest earlier occurrence of the last n-gram."""

from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.speculation.ngram import NGRAM, PromptLookup


def naive(known: list[int], most: int) -> tuple[int, ...]:
    """The definition: search backwards for the last NGRAM tokens, then read on, round and round."""
    if len(known) <= NGRAM:
        return ()
    for place in range(len(known) - 1, NGRAM - 1, -1):
        if known[place - NGRAM : place] == known[-NGRAM:]:
            return tuple((known[place:] * (most + 1))[:most])
    return ()


@given(st.lists(st.integers(0, 2), max_size=60), st.lists(st.integers(1, 9)), st.integers(0, 12))
def test_lookup_finds_the_latest_occurrence_however_the_text_grew(text: list[int], steps: list[int], most: int) -> None:
    lookup = PromptLookup()
    length = 0
    for step in [*steps, len(text)]:
        length = min(len(text), length + step)
        assert lookup.draft(text[:length], most) == naive(text[:length], most)


def test_a_text_that_repeats_itself_is_drafted_round_and_round() -> None:
    assert PromptLookup().draft([7, 8, 7, 8, 7], 5) == (8, 7, 8, 7, 8)
    assert PromptLookup().draft([9, 5, 5, 5, 5], 4) == (5, 5, 5, 5)


def test_token_ids_of_a_wide_vocabulary_do_not_collide() -> None:
    wide = 262_143
    assert PromptLookup().draft([wide, 0, 1, 2, wide, 0, 1], 1) == (2,)
    assert PromptLookup().draft([wide, 0, 1, 2, wide - 1, 0, 1], 1) == ()
