"""The steps that one replica probably has cached, least recently used first, and the blocks of its engine that hold them.

Blocks are known where the engine's events have named them. A step leaves with its last block: engines evict the end of a
prefix before its beginning. Other steps age.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from sluice_gateway.routing.step_ties import Tie

MAX_TIED: Final = 64  # steps in one block: of 256 bytes each, more than a block of 4,096 tokens has


class ReplicaCache:
    """Its memory is bounded by the number of its steps. `is_followed`: the engine's events say what it holds."""

    def __init__(self) -> None:
        self.share = 1.0  # of the KV cache that holds prefixes
        self.is_followed = False
        self._most = 0
        self._steps: OrderedDict[int, None] = OrderedDict()
        self._ties: dict[int, Tie] = {}  # of steps whose block is known
        self._tied: dict[int, list[int]] = {}  # block → steps

    def __len__(self) -> int:
        """Number of steps."""
        return len(self._steps)

    def leading_tokens(self, steps: Iterable[int], step_tokens: float) -> float:
        """Tokens of the leading steps that are in the list, by the engine's count as far as blocks are known."""
        held, ties = self._steps, self._ties
        known = count = 0  # tokens up to the last step with a block, and steps after it
        for step in steps:
            if step not in held:
                break
            tie = ties.get(step)
            if tie is None:
                count += 1
            else:
                known, count = tie.tokens, 0
        return known + count * step_tokens

    def use(self, steps: Sequence[int], most: int) -> None:
        """Make these steps the most recently used, the first one last, and keep the `most` most recent."""
        held, self._most = self._steps, most
        for step in reversed(steps):
            held[step] = None
            held.move_to_end(step)
        while len(held) > most:
            step, _ = held.popitem(last=False)
            self._untie(step)

    def retract(self, steps: Iterable[int]) -> None:
        """These steps were not computed. Those whose block is known are there all the same."""
        for step in steps:
            if step not in self._ties:
                self._steps.pop(step, None)

    def stored(self, steps: Sequence[int], ties: Sequence[Tie | None]) -> None:
        """The engine has computed a prompt: its steps lie in these blocks, and those without one are not cached."""
        self.is_followed = True
        found = [tie for tie in ties if tie is not None]
        self.retract(steps[len(found) :])
        self.use(steps[: len(found)], self._most)
        for step, tie in zip(steps, found, strict=False):
            if step in self._steps:
                self._tie(step, tie)

    def removed(self, blocks: Iterable[int]) -> None:
        """These blocks have left the engine's cache, and their steps with them."""
        for block in blocks:
            for step in self._tied.pop(block, ()):
                del self._steps[step], self._ties[step]

    def unfollow(self) -> None:
        """Events were lost: what is in the list ages as if there had been none."""
        self.is_followed = False
        self._ties, self._tied = {}, {}

    def _tie(self, step: int, tie: Tie) -> None:
        known = self._ties.get(step)
        if known == tie:
            return
        if known is not None:
            self._untie(step)
        members = self._tied.setdefault(tie.block, [])
        if len(members) < MAX_TIED:
            members.append(step)
            self._ties[step] = tie

    def _untie(self, step: int) -> None:
        tie = self._ties.pop(step, None)
        if tie is not None:
            members = self._tied[tie.block]
            members.remove(step)
            if not members:
                del self._tied[tie.block]
