"""A runner without a model: blocks hold (position, token) pairs in place of keys and values, and the next token is a hash of
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


def undisturbed(seed: int, prompt: Sequence[int], count: int, windows: Sequence[int | None] = (None,)) -> list[int]:
    """The tokens of a request alone, where the layers of each group look at the last so many tokens, one's own included.

    A token's cell holds the token alone, so unlike keys and values it does not depend on what the token attends to.
    """
    known = list(prompt)
    while len(known) < len(prompt) + count:
        seen = list(enumerate(known))
        known.append(next_token(seed, [cell for window in windows for cell in seen[-(window or len(seen)) :]]))
    return known[len(prompt) :]


class PaperRunner:
    """Runs plans over `num_blocks` blocks, whose layers look at so many tokens by group."""

    def __init__(
        self, num_blocks: int, block_size: int, windows: Sequence[int | None] = (None,), host_blocks: int = 0
    ) -> None:
        self._size = block_size
        self._windows = windows
        self._cells = [[EMPTY] * block_size for _ in range(num_blocks + host_blocks)]
        self._first_host = num_blocks
        self.swaps = 0
        self._tables: dict[int, list[int]] = {}
        self._seeds: dict[int, int] = {}
        self._last_token: dict[int, int] = {}  # by slot, last
        self.copies = 0

    def run(self, plan: Plan) -> list[int]:
        """The sampled tokens of the plan: copies first, then every row writes, then every row reads."""
        self.copies += len(plan.copies)
        within = [copy for copy in plan.copies if max(copy) < self._first_host]
        for source, target in plan.copies:
            if max(source, target) >= self._first_host:
                self._cells[target] = list(self._cells[source])
                self.swaps += 1
        contents = [list(self._cells[source]) for source, _ in within]
        for (_, target), content in zip(within, contents, strict=True):
            self._cells[target] = content
        self._seeds.update((join.slot, join.sampling.seed or 0) for join in plan.joins)
        for row in plan.rows:
            table = self._tables.setdefault(row.slot, [])
            table[row.first_block : row.first_block + len(row.new_blocks)] = row.new_blocks
            for fork in row.forks:
                self._tables[fork.slot] = list(table)
        for row in plan.rows:
            for position, token in enumerate(row.tokens, start=row.start):
                if token == PENDING:
                    token = self._last_token[row.slot]
                for group in range(len(self._windows)):
                    block, offset = self._place(row.slot, group, position)
                    self._cells[block][offset] = (position, token)
        sampled: list[int] = []
        for row in plan.rows:
            self._read(row.slot, row.start + 1)  # the row's first token looks further back than its last
            read = self._read(row.slot, row.start + len(row.tokens))
            if row.samples:
                for slot in (row.slot, *(fork.slot for fork in row.forks)):
                    self._last_token[slot] = next_token(self._seeds[slot], read)
                    sampled.append(self._last_token[slot])
        return sampled

    def _place(self, slot: int, group: int, position: int) -> tuple[int, int]:
        logical, offset = divmod(position, self._size)
        block = self._tables[slot][logical * len(self._windows) + group]
        assert block >= 0, f"position {position} has no block in group {group}"
        return block, offset

    def _read(self, slot: int, count: int) -> list[tuple[int, int]]:
        """What the last of so many tokens looks at, one group after another."""
        read: list[tuple[int, int]] = []
        for group, window in enumerate(self._windows):
            for position in range(0 if window is None else max(0, count - window), count):
                block, offset = self._place(slot, group, position)
                cell = self._cells[block][offset]
                assert cell[0] == position, f"the cell of position {position} in group {group} has {cell}"
                read.append(cell)
        return read
