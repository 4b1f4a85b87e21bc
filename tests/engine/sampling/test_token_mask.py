"""Masks of allowed tokens: every form bars the same ones."""

import numpy as np
import pytest

from sluice_engine.sampling.token_mask import TokenMask, end_where_empty, packed_mask, token_mask

WIDTH = 1000  # not a multiple of 32: the last word has bits of no token


def allowed_at_end(words: np.ndarray, at_end: list[int]) -> list[int]:
    """The tokens of one packed mask, which may be empty."""
    scores = np.ones(WIDTH, dtype=np.float32)
    end_where_empty(words[None], WIDTH, at_end)
    token_mask(words, WIDTH).bar(scores)
    return np.flatnonzero(np.isfinite(scores)).tolist()


def form(mask: TokenMask) -> str:
    (name,) = (name for name in ("only", "never", "penalty") if getattr(mask, name) is not None)
    return name


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, "only"), (62, "only"), (63, "penalty"), (500, "penalty"), (937, "penalty"), (938, "never"), (1000, "never")],
)
def test_every_form_bars_the_same_tokens(count: int, expected: str) -> None:
    generator = np.random.default_rng(count)
    allowed = np.sort(generator.permutation(WIDTH)[:count])
    scores = generator.standard_normal(WIDTH).astype(np.float32)
    mask = token_mask(packed_mask(allowed, WIDTH), WIDTH)
    assert form(mask) == expected
    wanted = np.full(WIDTH, -np.inf, dtype=np.float32)
    wanted[allowed] = scores[allowed]
    assert np.array_equal(scores + mask.as_penalty(WIDTH), wanted)
    mask.bar(scores)
    assert np.array_equal(scores, wanted)


def test_where_nothing_may_follow_the_output_ends() -> None:
    assert allowed_at_end(np.zeros(32, dtype=np.int32), [7, 9]) == [7, 9]
    assert allowed_at_end(packed_mask([3], WIDTH), [7, 9]) == [3]


def test_bits_behind_the_vocabulary_allow_nothing() -> None:
    assert allowed_at_end(packed_mask(range(WIDTH, 1024), 1024), [7, WIDTH + 1]) == [7]
