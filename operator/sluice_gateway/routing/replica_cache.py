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
        self._steps: OrderedDict[int, Tie | None] = OrderedDict()
        self._tied: dict[int, list[int]] = {}  # block → steps

    def __len__(self) -> int:
        """Number of steps."""
        return len(self._steps)

    def leading_tokens(self, steps: Iterable[int], step_tokens: float) -> float:
        """Tokens of the leading steps that are in the list, by the engine's count as far as blocks are known."""
        held, tokens = self._steps, 0.0
        if not self.is_followed:
            count = 0
            for step in steps:
                if step not in held:
                    break
                count += 1
            return count * step_tokens
        for step in steps:
            if step not in held:
                break
            tie = held[step]
            tokens = tokens + step_tokens if tie is None else tie.tokens
        return tokens

    def use(self, steps: Sequence[int], most: int) -> None:
        """Make these steps the most recently used, the first one last, and keep the `most` most recent."""
        held, self._most = self._steps, most
        for step in reversed(steps):
            held.setdefault(step)
            held.move_to_end(step)
        while len(held) > most:
            self._drop(next(iter(held)))

    def retract(self, steps: Iterable[int]) -> None:
        """These steps were not computed. Those whose block is known are there all the same."""
        for step in steps:
            if self._steps.get(step) is None:
                self._steps.pop(step, None)

    def stored(self, steps: Sequence[int], ties: Sequence[Tie | None]) -> None:
        """The engine has computed a prompt: its steps lie in these blocks, and those without one are not cached."""
        self.is_followed = True
        found = [(step, tie) for step, tie in zip(steps, ties, strict=True) if tie is not None]
        self.retract(steps[len(found) :])
        self.use([step for step, _ in found], self._most)
        for step, tie in found:
            if step in self._steps:
                self._tie(step, tie)

    def removed(self, blocks: Iterable[int]) -> None:
        """These blocks have left the engine's cache, and their steps with them."""
        for block in blocks:
            for step in self._tied.pop(block, ()):
                del self._steps[step]

    def unfollow(self) -> None:
        """Events were lost: what is in the list ages as if there had been none."""
        self.is_followed = False
        for steps in self._tied.values():
            for step in steps:
                self._steps[step] = None
        self._tied.clear()

    def _tie(self, step: int, tie: Tie) -> None:
        self._untie(step)
        members = self._tied.setdefault(tie.block, [])
        if len(members) < MAX_TIED:
            members.append(step)
            self._steps[step] = tie

    def _untie(self, step: int) -> None:
        tie = self._steps[step]
        if tie is not None:
            members = self._tied[tie.block]
            members.remove(step)
            if not members:
                del self._tied[tie.block]
            self._steps[step] = None

    def _drop(self, step: int) -> None:
        self._untie(step)
        del self._steps[step]
