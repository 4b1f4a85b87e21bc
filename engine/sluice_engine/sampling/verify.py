"""Which draft tokens stand: those that the sampler chooses anyway at their positions.

Randomness is a function of (seed, position), so the token at a position is settled before anyone guesses it. A draft is
accepted exactly as far as it equals those tokens; the first that does not is replaced by its own, and what follows was
computed behind a wrong token and falls. So speculation changes neither greedy nor drawn text, not one token of it;
rejection sampling (Leviathan et al., 2023) would keep the distribution only.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NO_TOKEN = -1


class Drafts(NamedTuple):
    """How the logits rows of one request hang together: a row stands if those before it chose what was drafted."""

    first: NDArray[np.int64]  # [L] the request's first logits row
    follows: NDArray[np.int64]  # [L] the draft token behind this row, whose logits are the next row; NO_TOKEN: none

    def kept(self, chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Rows [L] that were computed behind accepted tokens only, each request's first row among them. One that chose
        NO_TOKEN stands only as the first: behind drafts it may owe that to one of them."""
        wrong = chosen != self.follows
        before = np.cumsum(wrong) - wrong
        kept: NDArray[np.bool_] = before == before[self.first]
        kept &= (chosen != NO_TOKEN) | (self.first == np.arange(len(chosen)))
        return kept

    def supposed(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What these rows take for said already: (places in `rows`, tokens), one pair for each draft token before."""
        pairs = [
            (place, int(self.follows[before]))
            for place, row in enumerate(rows.tolist())
            for before in range(int(self.first[row]), row)
        ]
        table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])
