"""Masks of allowed tokens: every form bars the same ones."""

import numpy as np
import pytest

from sluice_engine.sampling.token_mask import TokenMask, token_mask

WIDTH = 1000  # not a multiple of 32: the last word has bits of no token


def packed(allowed: np.ndarray) -> np.ndarray:
    bits = np.zeros(1024, dtype=np.uint8)
    bits[allowed] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


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
    mask = token_mask(packed(allowed), WIDTH, [7])
    assert form(mask) == expected
    wanted = np.full(WIDTH, -np.inf, dtype=np.float32)
    wanted[allowed] = scores[allowed]
    assert np.array_equal(scores + mask.as_penalty(WIDTH), wanted)
    mask.bar(scores)
    assert np.array_equal(scores, wanted)


def test_where_nothing_may_follow_the_output_ends() -> None:
    scores = np.ones(WIDTH, dtype=np.float32)
    token_mask(np.zeros(32, dtype=np.int32), WIDTH, [7, 9]).bar(scores)
    assert np.flatnonzero(np.isfinite(scores)).tolist() == [7, 9]


def test_bits_behind_the_vocabulary_allow_nothing() -> None:
    scores = np.ones(WIDTH, dtype=np.float32)
    token_mask(packed(np.arange(WIDTH, 1024)), WIDTH, [7]).bar(scores)
    assert np.flatnonzero(np.isfinite(scores)).tolist() == [7]
