"""Who runs, in which slot, with which blocks: every change of those goes through here, so that they always add up.

`running` is in order of strength, which is aged priority, then arrival: the strongest always advances, the weakest
makes room. What rules decide (planner, settler) is not known here.

A step may be planned while the one before it runs, so a request can leave while a step still writes its blocks. They
are *fenced* then: held until that step has been settled.
"""

from bisect import insort
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from sluice_engine.blocks import HOLE, BlockPool, extend_hashes, first_seen, in_group
from sluice_engine.request import Request
from sluice_engine.scheduler.config import SchedulerConfig
from sluice_engine.scheduler.policies import aged_arrival


@dataclass(slots=True)
class _Fence:
    """Blocks of a request that has left while a step may still write them."""

    request_id: str
    until: int  # this step has been settled
    blocks: list[int]
    forget: bool


class Books:
    """Running requests, their slots and their blocks."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.pool = BlockPool(config.num_blocks, config.block_size)
        self.running: list[Request] = []  # strongest first
        self.tainted: list[int] = []  # blocks of failed requests, for the runner to scrub before the next step
        self.planned = 0  # the last step that was planned
        self.settled = 0  # the last step that has ended and been settled
        self.retired: dict[Request, int] = {}  # no longer running; the step that computes their last token is
        self.unseen: set[int] = set()  # slots of forked requests that no plan has named yet
        self.departures = 0  # times that somebody stopped running or gave blocks back
        self._config = config
        self._groups = config.groups
        self._sliding = [group for group, window in enumerate(config.windows) if window is not None]
        self._fences: list[_Fence] = []
        self._slots = list(range(config.max_num_seqs - 1, -1, -1))

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold this many tokens, of all groups of layers."""
        return -(-tokens // self._config.block_size) * self._groups

    # --- a request runs, grows and leaves ----------------------------------------------------------------------

    def start(self, request: Request, hit: list[int]) -> None:
        """A request begins to run, from the cached blocks in `hit`."""
        self.pool.acquire(hit)
        stretches = len(hit) // self._groups
        request.blocks = list(hit)
        request.gone = hit.count(HOLE) // max(1, len(self._sliding))
        request.computed = stretches * self._config.block_size
        request.indexed = stretches
        self._enter(request)

    def resume(self, request: Request) -> None:
        """After `start`: blocks for what host memory keeps of the request behind what was still cached; from now on
        that is computed. Raises MemoryError."""
        request.computed = request.swapped_tokens
        self.slide(request)  # first, because what was still cached may lie before the window by now
        behind = request.swapped[len(request.blocks) :]
        new = iter(self.pool.allocate(len(behind) - behind.count(HOLE)))
        request.blocks += [HOLE if block == HOLE else next(new) for block in behind]

    def grow(self, request: Request, tokens: int) -> None:
        """Give the request's table the blocks for `tokens` tokens. Raises MemoryError where there are none."""
        need = self.blocks_for(tokens) - len(request.blocks)
        if need > 0 and not request.whole:
            request.blocks += self.pool.allocate(need)

    def trim(self, request: Request) -> None:
        """Give back the blocks beyond what is computed: those of drafts that were not accepted, of a chunk's end that
        was given up."""
        surplus = request.blocks[self.blocks_for(request.computed) :]
        if surplus:
            del request.blocks[-len(surplus) :]
            self.pool.release(surplus)

    def slide(self, request: Request) -> None:
        """Give back the blocks that left the window: nothing that is still to be computed looks at them."""
        if not self._sliding:
            return
        first = first_seen(request.computed, self._config.window, self._config.block_size)
        if first > request.gone:
            table, groups = request.blocks, self._groups
            left = range(request.gone * groups, min(first * groups, len(table)), groups)
            places = [place + group for place in left for group in self._sliding]
            self.pool.release([table[place] for place in places])
            for place in places:
                table[place] = HOLE
            request.gone = first

    def fork(self, parent: Request, child: Request, computed: int) -> None:
        """`child` begins to run, from all that `parent` holds of its first `computed` tokens: blocks are shared, the
        part-filled last one too, until one of those that share it writes."""
        shared = parent.blocks[: self.blocks_for(computed)]
        self.pool.acquire(shared)
        child.blocks = shared
        child.gone = parent.gone
        child.computed = computed
        child.indexed = min(parent.indexed, computed // self._config.block_size)
        self._enter(child)
        self.unseen.add(child.slot)
        parent.forked = child.forked = True

    def shared(self, request: Request, stretch: int) -> list[int]:
        """Places in the request's table whose blocks, of this stretch, others hold as well."""
        places = range(stretch * self._groups, (stretch + 1) * self._groups)
        return [place for place in places if self.pool.shared(request.blocks[place])]

    def own(self, request: Request, stretch: int) -> list[tuple[int, int]]:
        """Let the request be the only holder of the blocks of this stretch, which it is about to write. Returns (source,
        target) of the copies that it takes. Raises MemoryError."""
        places = self.shared(request, stretch)
        sources, targets = [request.blocks[place] for place in places], self.pool.allocate(len(places))
        self.pool.release(sources)
        for place, target in zip(places, targets, strict=True):
            request.blocks[place] = target
        return list(zip(sources, targets, strict=True))

    def retire(self, request: Request) -> None:
        """Its last token is being computed by the step that was planned last: its place is free for the next step, its
        blocks when it leaves."""
        self._vacate(request)
        self.retired[request] = self.planned

    def leave(self, request: Request, forget: bool = False) -> None:
        """The one way for a request to give back what it holds, now or as soon as no step writes it. `forget`: nobody
        finds its blocks from now on, and those that nobody holds any more are `tainted`."""
        last = self.retired.pop(request, None)
        if last is None:
            self._vacate(request)
            last = self.planned
        blocks, request.blocks = request.blocks, []
        if request.pending:
            request.known.pop()
        request.pending = request.forked = False
        request.begun = None
        request.computed = request.indexed = request.gone = 0
        if last <= self.settled:
            self._release(blocks, forget)
            return
        if forget:
            self.pool.forget(blocks)
        self._fences.append(_Fence(request.request_id, last, blocks, forget))

    def end_step(self, failed: Container[str]) -> None:
        """The step `settled` has been settled: what waited for that is given back. What requests in `failed` were to
        compute is trusted by nobody, though they may have left meanwhile."""
        still: list[_Fence] = []
        for fence in self._fences:
            if fence.request_id in failed and not fence.forget:
                fence.forget = True
                self.pool.forget(fence.blocks)
            if fence.until <= self.settled:
                self._release(fence.blocks, fence.forget)
            else:
                still.append(fence)
        self._fences = still

    @property
    def empty(self) -> bool:
        """Whether nobody holds or waits to give back anything."""
        return not (self.running or self.retired or self._fences)

    def _enter(self, request: Request) -> None:
        request.slot = self._slots.pop()
        request.begun = self.planned + 1
        insort(self.running, request, key=_strength)

    def _vacate(self, request: Request) -> None:
        self.running.remove(request)
        self.unseen.discard(request.slot)
        self._slots.append(request.slot)
        request.slot = -1
        self.departures += 1

    def _release(self, blocks: list[int], forget: bool) -> None:
        dropped = self.pool.release(blocks, forget)
        self.departures += 1
        if forget:
            self.tainted += dropped

    # --- the prefix index --------------------------------------------------------------------------------------

    def hash_known(self, request: Request) -> None:
        """Name the full blocks of what the request knows by now."""
        if self._shares(request):
            extend_hashes(request.hashes, request.known, self._config.block_size, request.tenant)

    def match(self, request: Request) -> list[int]:
        """Cached blocks that this waiting request can start from. Its last token is always left to compute, so the
        block that holds it is never shared."""
        if not self._shares(request):
            return []
        most = (len(request.known) - 1) // self._config.block_size
        return self.pool.match(request.hashes[:most], self._config.windows)

    def index(self, request: Request) -> None:
        """Offer blocks that became full and computed to the prefix index."""
        full = request.computed // self._config.block_size
        if full > request.indexed and self._shares(request):
            self.hash_known(request)
            self._index(request, range(request.indexed, full))
            request.indexed = full

    def promise(self, request: Request, computed: int) -> list[int]:
        """Index the prompt's blocks that this step fills, so that one that starts behind it in the same step shares
        them: in each layer the keys and values of the whole batch are written before any is read. Returns them."""
        if not self._shares(request):
            return []
        return self._index(request, range(request.indexed, computed // self._config.block_size))

    def unpromise(self, promised: Sequence[int], planned: int, computed: int) -> None:
        """Take back `promise` for blocks that a chunk was to fill up to token `planned` and filled up to `computed`.
        Where all layers cache alike: one block to a stretch."""
        size = self._config.block_size
        filled = len(promised) - planned // size + computed // size
        self.pool.forget(promised[max(0, filled) :])

    def index_stretch(self, request: Request, stretch: int) -> None:
        """Offer the blocks of one stretch, which became full and computed."""
        self.hash_known(request)
        self._index(request, (stretch,))
        request.indexed = stretch + 1

    def _index(self, request: Request, stretches: Sequence[int]) -> list[int]:
        """Make the blocks of these stretches findable, and name them."""
        if self._groups == 1 and not self._sliding:
            for stretch in stretches:
                self.pool.index(request.blocks[stretch], request.hashes[stretch])
            return [request.blocks[stretch] for stretch in stretches]
        found: list[int] = []
        for stretch in stretches:
            for group in range(self._groups):
                block = request.blocks[stretch * self._groups + group]
                if block != HOLE:
                    self.pool.index(block, in_group(request.hashes[stretch], group))
                    found.append(block)
        return found

    def _shares(self, request: Request) -> bool:
        return self._config.prefix_cache and not request.whole

    # --- do they add up ----------------------------------------------------------------------------------------

    def check(self, waiting: Iterable[Request]) -> None:
        """Raise RuntimeError unless the books add up, recounted from the block tables. Not while planning or settling."""
        tables = [request.blocks for request in (*self.running, *self.retired)]
        self.pool.check(tables + [fence.blocks for fence in self._fences])
        size, under_way = self._config.block_size, self.planned > self.settled
        for request in self.running:
            used = len(request.known) if under_way else request.computed  # a step under way fills what it was given
            if len(request.blocks) * size - used * self._groups >= size * self._groups:
                raise RuntimeError(f"{request.request_id} wastes a whole block")
            first = first_seen(request.computed, self._config.window, size)
            lags = under_way and request.gone < first  # it slides when that step is settled
            table, left = request.blocks, request.gone * self._groups
            holes = sum(table[group : left : self._groups].count(HOLE) for group in self._sliding)
            right = holes == table.count(HOLE) == request.gone * len(self._sliding)
            if table and not (right and (request.gone == first or lags)):
                raise RuntimeError(f"{request.request_id} holds blocks that its window left, or lacks some in it")
        if any(request.blocks or request.slot >= 0 for request in waiting):
            raise RuntimeError("a waiting request holds blocks")
        if len(self._slots) + len(self.running) != self._config.max_num_seqs:
            raise RuntimeError("a slot is lost")


def _strength(request: Request) -> tuple[float, int]:
    """Who keeps its blocks when they run out: the highest priority, aged, then the earliest."""
    return aged_arrival(request), request.order
