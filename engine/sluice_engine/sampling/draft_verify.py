"""Decides which draft tokens are accepted: those that the sampler samples anyway at their positions.

Randomness is a function of (seed, position), so the token at a position does not depend on the drafts. The longest
prefix of drafts that equals the sampled tokens is accepted. The first mismatch is replaced by the sampled token, and
the rows after it are dropped because they were computed after a wrong token. Speculation therefore changes no token of
greedy or random output; rejection sampling (Leviathan et al., 2023) would preserve only the distribution.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NO_TOKEN = -1


class Drafts(NamedTuple):
    """The logits rows of each request in order: a row is kept if all rows before it sampled their draft token."""

    first: NDArray[np.int64]  # [L] the request's first logits row
    follows: NDArray[np.int64]  # [L] the draft token after this row, input of the next row; NO_TOKEN: none

    def kept(self, chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mask [L] of the rows computed after accepted tokens only, including each request's first row. A row that
        sampled NO_TOKEN is kept only if it is the first: after a draft, that draft may be the cause.
        """
        wrong = chosen != self.follows
        before = np.cumsum(wrong) - wrong
        kept: NDArray[np.bool_] = before == before[self.first]
        kept &= (chosen != NO_TOKEN) | (self.first == np.arange(len(chosen)))
        return kept

    def before(self, row: int) -> list[int]:
        """The draft tokens that precede this row, in order."""
        return [int(token) for token in self.follows[int(self.first[row]) : row]]

    def after(self, first: int) -> tuple[int, ...]:
        """The draft tokens of the request whose first row this is, in order."""
        return tuple(int(token) for token in self.follows[first : first + int((self.first == first).sum()) - 1])

    def preceding_drafts(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The draft tokens that precede these rows, as (indices into `rows`, tokens): one pair per row and preceding
        draft.
        """
        pairs = [(place, token) for place, row in enumerate(rows.tolist()) for token in self.before(row)]
        table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])
