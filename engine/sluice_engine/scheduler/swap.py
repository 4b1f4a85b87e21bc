"""A victim's blocks in host memory: for whom copying out and back takes less time than computing again.

Host blocks are numbered behind those of the pool, so that a copy is a pair of numbers wherever it goes. Copies are made
in the order of the plans, before a step computes anything: a block may be given away in the plan that copies it out.
Where blocks have left a window, what is kept here has the same HOLEs.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from sluice_engine.blocks import HOLE
from sluice_engine.request import Request
from sluice_engine.scheduler.budget import chunk_context
from sluice_engine.scheduler.config import SchedulerConfig
from sluice_law.limit import TRUSTED_STEPS
from sluice_law.steptime import StepTimeModel, StepWork

Copy = tuple[int, int]  # (source, target)
WAYS: Final = 2  # a block goes out and comes back


class Swap:
    """The host's blocks, and the copies that the next plan has to make."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._free = list(range(config.num_blocks + config.host_blocks - 1, config.num_blocks - 1, -1))
        self._copies: list[Copy] = []

    @property
    def free(self) -> int:
        """Host blocks that hold nothing."""
        return len(self._free)

    def pays(self, request: Request, model: StepTimeModel | None) -> bool:
        """Whether there is room for what the request has computed, and the model predicts that computing it again takes
        longer than copying it out and back. Its prefix may stay cached here, which neither side counts."""
        config = self._config
        blocks = -(-request.computed // config.block_size) * config.groups - request.gone * config.sliding
        if not 0 < blocks <= self.free or model is None or model.steps < TRUSTED_STEPS:
            return False
        if request.whole or request.steered:
            return False
        work = StepWork(prefill_tokens=request.computed, prefill_context=chunk_context(request.computed, 0))
        again = model.predict(work) - model.base  # in a step that others share
        return again > WAYS * blocks * self._config.swap_block_seconds

    def out(self, request: Request) -> None:
        """Copy what the request has computed; call before it leaves. Its last known token is computed again anyway."""
        request.swapped_tokens = min(request.computed, len(request.known) - 1)
        held = request.blocks[: -(-request.swapped_tokens // self._config.block_size) * self._config.groups]
        request.swapped = [HOLE if block == HOLE else self._free.pop() for block in held]
        self._copies += _pairs(held, request.swapped)

    def back(self, request: Request, found: int) -> None:
        """Copy into the blocks that the request has been given, behind the `found` ones that were still cached."""
        self._copies += _pairs(request.swapped[found:], request.blocks[found : len(request.swapped)])
        self.drop(request)

    def drop(self, request: Request) -> None:
        """What the request has here is of no use any more."""
        self._free += [block for block in request.swapped if block != HOLE]
        request.swapped, request.swapped_tokens = [], 0

    def take(self) -> list[Copy]:
        """The copies that the next plan makes."""
        copies, self._copies = self._copies, []
        return copies

    def check(self, waiting: Iterable[Request]) -> None:
        """Raise RuntimeError unless each host block is free or one waiting request's."""
        held = [block for request in waiting for block in request.swapped if block != HOLE]
        every = range(self._config.num_blocks, self._config.num_blocks + self._config.host_blocks)
        if sorted(held + self._free) != list(every):
            raise RuntimeError(f"host blocks: held {len(held)} + free {self.free} is not total {len(every)}")


def _pairs(sources: Sequence[int], targets: Sequence[int]) -> list[Copy]:
    return [pair for pair in zip(sources, targets, strict=True) if HOLE not in pair]
