"""The tokens that a row may sample, in the form that bars the others at the least cost.

Most states of a grammar allow few tokens or nearly all. Then a few writes bar the rest; an addition to the whole row,
which reads and writes every score, is left for what lies between.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FEW: Final = 1 / 16  # of the vocabulary: up to there, writing single scores is faster than an addition to all

WORD_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class TokenMask:
    """One of three forms. `only`: ids of the tokens that are allowed. `never`: ids of those that are not. `penalty`: [V]
    float32, −∞ for those that are not, else 0.
    """

    only: NDArray[np.int64] | None = None
    never: NDArray[np.int64] | None = None
    penalty: NDArray[np.float32] | None = None

    def bar(self, scores: NDArray[np.float32]) -> None:
        """Set the scores [V] of the tokens that are not allowed to −∞. The score of such a token is not judged: it may
        have been NaN.
        """
        if self.only is not None:
            kept = scores[self.only]
            scores.fill(-np.inf)
            scores[self.only] = kept
        elif self.never is not None:
            scores[self.never] = -np.inf
        elif self.penalty is not None:
            scores += self.penalty

    def as_penalty(self, width: int) -> NDArray[np.float32]:
        """The same as the penalty [width], which any device can add."""
        if self.penalty is not None:
            return self.penalty
        penalty = np.full(width, 0.0 if self.only is None else -np.inf, dtype=np.float32)
        if self.only is not None:
            penalty[self.only] = 0.0
        elif self.never is not None:
            penalty[self.never] = -np.inf
        return penalty


def token_mask(packed: NDArray[np.int32], width: int) -> TokenMask:
    """The mask of `width` tokens, one bit each in `packed`, 1 where the token is allowed."""
    bits = np.unpackbits(packed.view(np.uint8), bitorder="little")[:width]
    allowed = int(np.count_nonzero(bits))
    if allowed <= FEW * width:
        return TokenMask(only=np.flatnonzero(bits))
    if allowed >= (1 - FEW) * width:
        return TokenMask(never=np.flatnonzero(bits == 0))
    return TokenMask(penalty=np.where(bits, np.float32(0.0), np.float32(-np.inf)))


def words_of(width: int) -> int:
    """Words of a packed mask of `width` tokens."""
    return -(-width // WORD_BITS)


def packed_mask(ids: Collection[int], width: int) -> NDArray[np.int32]:
    """The packed mask that allows those of these tokens that are below `width`: [ceil(width / 32)] int32."""
    bits = np.zeros(words_of(width) * WORD_BITS, dtype=np.uint8)
    bits[[token for token in ids if token < width]] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


def end_where_empty(words: NDArray[np.int32], width: int, at_end: Collection[int]) -> None:
    """Allow the tokens `at_end` in the packed masks words [R, ceil(width / 32)] that allow no token: the output ends
    there.
    """
    if rest := width % WORD_BITS:
        words[:, -1] &= np.int32((1 << rest) - 1)
    words[~words.any(axis=1)] = packed_mask(at_end, width)
