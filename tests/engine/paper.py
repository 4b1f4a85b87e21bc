"""A runner on paper: blocks hold (position, token) pairs in place of keys and values, and the next token is a hash of
what a row reads through its block table. A block shared, copied or freed wrongly changes what is read, so the text."""

import hashlib
from collections.abc import Sequence

from sluice_engine.scheduler import PENDING, Plan

EMPTY = (-1, -1)
VOCABULARY = 5


def next_token(seed: int, context: Sequence[tuple[int, int]]) -> int:
    """The token after this context, for a sample of this seed."""
    digest = hashlib.blake2b(repr((seed, list(context))).encode(), digest_size=4).digest()
    return int.from_bytes(digest) % VOCABULARY


def undisturbed(seed: int, prompt: Sequence[int], count: int, window: int | None = None) -> list[int]:
    """What a request alone says, where each token looks at the last `window` ones only, its own included.

    A token's cell holds the token alone, so unlike keys and values it says nothing of what the token looked at.
    """
    known = list(prompt)
    while len(known) < len(prompt) + count:
        known.append(next_token(seed, list(enumerate(known))[-(window or len(known)) :]))
    return known[len(prompt) :]


class PaperRunner:
    """Runs plans over `num_blocks` blocks, looking at `window` tokens at most."""

    def __init__(self, num_blocks: int, block_size: int, window: int | None = None, host_blocks: int = 0) -> None:
        self._size = block_size
        self._window = window
        self._cells = [[EMPTY] * block_size for _ in range(num_blocks + host_blocks)]
        self._first_host = num_blocks
        self.swaps = 0
        self._tables: dict[int, list[int]] = {}
        self._seeds: dict[int, int] = {}
        self._said: dict[int, int] = {}  # by slot, last
        self.copies = 0

    def run(self, plan: Plan) -> list[int]:
        """The tokens of the plan's choosers: copies first, then every row writes, then every row reads."""
        self.copies += len(plan.copies)
        within = [copy for copy in plan.copies if max(copy) < self._first_host]
        for source, target in plan.copies:
            if max(source, target) >= self._first_host:
                self._cells[target] = list(self._cells[source])
                self.swaps += 1
        contents = [list(self._cells[source]) for source, _ in within]
        for (_, target), content in zip(within, contents, strict=True):
            self._cells[target] = content
        self._seeds.update((join.slot, join.sampling.seed) for join in plan.joins)
        for row in plan.rows:
            table = self._tables.setdefault(row.slot, [])
            table[row.first_block : row.first_block + len(row.new_blocks)] = row.new_blocks
            for twin in row.twins:
                self._tables[twin.slot] = list(table)
        for row in plan.rows:
            for position, token in enumerate(row.tokens, start=row.start):
                if token == PENDING:
                    token = self._said[row.slot]
                block, offset = divmod(position, self._size)
                self._cells[self._tables[row.slot][block]][offset] = (position, token)
        sampled: list[int] = []
        for row in plan.rows:
            if row.samples:
                read = self._read(row.slot, row.start + len(row.tokens))
                for slot in (row.slot, *(twin.slot for twin in row.twins)):
                    self._said[slot] = next_token(self._seeds[slot], read)
                    sampled.append(self._said[slot])
        return sampled

    def _read(self, slot: int, count: int) -> list[tuple[int, int]]:
        first = 0 if self._window is None else max(0, count - self._window)
        places = (divmod(position, self._size) for position in range(first, count))
        return [self._cells[self._tables[slot][block]][offset] for block, offset in places]
