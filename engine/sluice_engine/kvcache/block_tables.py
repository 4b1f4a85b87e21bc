"""Running requests, their slots and their block tables: every change of these is made here, so that they add up.

`running` is in order of `preemption_key`: the first request always advances, the last one is preempted first. The
scheduler's rules decide which requests run.

A step may be planned while the step before it runs, so a request can end while a step still writes its blocks. These
are *fenced* then: held until that step is settled.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from sluice_engine.kvcache.block_pool import HOLE, BlockPool, extend_hashes, first_seen, group_digest
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.kvcache.event_log import PromptStored
from sluice_engine.request import Request

PreemptionKey = Callable[[Request], tuple[float, int]]  # unique per request; the smallest keeps its blocks the longest


@dataclass(slots=True)
class _Fence:
    """Blocks of a request that is no longer running while a step may still write them."""

    request_id: str
    until: int  # the step that has to be settled first
    blocks: list[int]
    forget: bool


class BlockTables:
    """Running requests, their slots and their blocks."""

    def __init__(self, config: CacheConfig, preemption_key: PreemptionKey) -> None:
        self.pool = BlockPool(config.num_blocks, config.block_size)
        self.running: list[Request] = []  # in order of `preemption_key`
        self.tainted: list[int] = []  # blocks of failed requests, for the runner to scrub before the next step
        self.planned = 0  # the last step that was planned
        self.settled = 0  # the last step that was settled
        self.finishing: dict[Request, int] = {}  # no longer running → the step that computes their last token
        self.unsent: set[int] = set()  # slots of forked requests whose table no plan has sent to the runner yet
        self._config = config
        self._strength = preemption_key
        self._groups = config.groups
        self._sliding = [group for group, window in enumerate(config.windows) if window is not None]
        self._fences: list[_Fence] = []
        self._slots = list(range(config.max_num_seqs - 1, -1, -1))

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold this many tokens, of all groups of layers."""
        return -(-tokens // self._config.block_size) * self._groups

    # --- a request starts, grows and ends ----------------------------------------------------------------------

    def start(self, request: Request, hit: list[int]) -> None:
        """A request begins to run, from the cached blocks in `hit`."""
        self.pool.acquire(hit)
        logical_blocks = len(hit) // self._groups
        request.blocks = list(hit)
        request.freed_leading = hit.count(HOLE) // max(1, len(self._sliding))
        request.computed = logical_blocks * self._config.block_size
        request.indexed = logical_blocks
        self._enter(request)

    def resume(self, request: Request) -> None:
        """After `start`: allocate blocks for the tokens in host memory after those that were still cached; they count as
        computed from now on. Raises MemoryError."""
        request.computed = request.swapped_tokens
        self.release_outside_window(request)  # first, because cached blocks may lie before the window now
        behind = request.swapped[len(request.blocks) :]
        new = iter(self.pool.allocate(len(behind) - behind.count(HOLE)))
        request.blocks += [HOLE if block == HOLE else next(new) for block in behind]

    def grow(self, request: Request, tokens: int) -> None:
        """Extend the request's table to hold `tokens` tokens. Raises MemoryError where there are no blocks."""
        need = self.blocks_for(tokens) - len(request.blocks)
        if need > 0 and not request.pooling:
            request.blocks += self.pool.allocate(need)

    def trim(self, request: Request) -> None:
        """Release the blocks after the computed tokens: of rejected drafts, or of the end of a chunk that was cut."""
        surplus = request.blocks[self.blocks_for(request.computed) :]
        if surplus:
            del request.blocks[-len(surplus) :]
            self.pool.release(surplus)

    def release_outside_window(self, request: Request) -> None:
        """Release the blocks before the window: no later token attends to them."""
        if not self._sliding:
            return
        first = first_seen(request.computed, self._config.window, self._config.block_size)
        if first > request.freed_leading:
            table, groups = request.blocks, self._groups
            left = range(request.freed_leading * groups, min(first * groups, len(table)), groups)
            places = [place + group for place in left for group in self._sliding]
            self.pool.release([table[place] for place in places])
            for place in places:
                table[place] = HOLE
            request.freed_leading = first

    def fork(self, parent: Request, child: Request, computed: int) -> None:
        """`child` begins to run from the blocks of the parent's first `computed` tokens. They are shared, the part-filled
        last one too, until one of the requests that share it writes."""
        shared = parent.blocks[: self.blocks_for(computed)]
        self.pool.acquire(shared)
        child.blocks = shared
        child.freed_leading = parent.freed_leading
        child.computed = computed
        child.indexed = min(parent.indexed, computed // self._config.block_size)
        self._enter(child)
        self.unsent.add(child.slot)
        parent.forked = child.forked = True

    def shared(self, request: Request, logical: int) -> list[int]:
        """Indices in the request's table of the pool blocks of this logical block that other requests hold as well."""
        places = range(logical * self._groups, (logical + 1) * self._groups)
        return [place for place in places if self.pool.shared(request.blocks[place])]

    def copy_on_write(self, request: Request, logical: int) -> list[tuple[int, int]]:
        """Replace the shared blocks of this logical block by blocks that only this request holds. Returns the (source,
        target) copies to make. Raises MemoryError."""
        places = self.shared(request, logical)
        sources, targets = [request.blocks[place] for place in places], self.pool.allocate(len(places))
        self.pool.release(sources)
        for place, target in zip(places, targets, strict=True):
            request.blocks[place] = target
        return list(zip(sources, targets, strict=True))

    def vacate_slot(self, request: Request) -> None:
        """Free the slot of a request whose last token is computed by the step that was planned last, so that the next step
        can use the slot; `release` frees the blocks later."""
        self._vacate(request)
        self.finishing[request] = self.planned

    def release(self, request: Request, forget: bool = False) -> None:
        """The only way to release all blocks of a request, now or as soon as no step writes them. `forget`: they are
        removed from the prefix index, and those without another holder are `tainted`."""
        last = self.finishing.pop(request, None)
        if last is None:
            self._vacate(request)
            last = self.planned
        blocks, request.blocks = request.blocks, []
        if request.pending:
            request.known.pop()
        request.pending = request.forked = False
        request.started_step = None
        request.computed = request.indexed = request.freed_leading = 0
        if last <= self.settled:
            self._release(blocks, forget)
            return
        if forget:
            self.pool.forget(blocks)
        self._fences.append(_Fence(request.request_id, last, blocks, forget))

    def end_step(self, failed: Container[str]) -> None:
        """The step `settled` was settled: release the blocks that were fenced until then. Blocks of requests in `failed`
        are forgotten, also where these ended meanwhile."""
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
        """Whether no request holds blocks and none are fenced."""
        return not (self.running or self.finishing or self._fences)

    def _enter(self, request: Request) -> None:
        request.slot = self._slots.pop()
        request.started_step = self.planned + 1
        insort(self.running, request, key=self._strength)

    def _vacate(self, request: Request) -> None:
        place = bisect_left(self.running, self._strength(request), key=self._strength)
        if place == len(self.running) or self.running[place] is not request:
            raise RuntimeError(f"request {request.request_id} is not running")
        del self.running[place]
        self.unsent.discard(request.slot)
        self._slots.append(request.slot)
        request.slot = -1

    def _release(self, blocks: list[int], forget: bool) -> None:
        dropped = self.pool.release(blocks, forget)
        if forget:
            self.tainted += dropped

    # --- the prefix index --------------------------------------------------------------------------------------

    def hash_known(self, request: Request) -> None:
        """Extend the request's hashes to all full blocks of its known tokens."""
        if self._shares(request):
            extend_hashes(request.hashes, request.known, self._config.block_size, request.tenant, request.cache_salt)

    def match(self, request: Request) -> list[int]:
        """Cached blocks that this waiting request can start from. Its last token is always left to compute, so the
        block that holds it is never shared. Blocks hold no logits: where these give the prompt's logprobs, only blocks
        whose logprobs were reported before a preemption are shared."""
        if not self._shares(request):
            return []
        last = request.scored if request.unscored else len(request.known) - 1
        most = last // self._config.block_size
        return self.pool.match(request.hashes[:most], self._config.windows)

    def index(self, request: Request) -> None:
        """Add blocks that became full and computed to the prefix index."""
        full = request.computed // self._config.block_size
        if full > request.indexed and self._shares(request):
            self.hash_known(request)
            self._index(request, range(request.indexed, full))
            request.indexed = full

    def index_ahead(self, request: Request, computed: int) -> list[int]:
        """Index the prompt's blocks that this step fills, so that a request that starts later in the same step shares
        them: in each layer the keys and values of the whole batch are written before any is read. Returns them."""
        if not self._shares(request):
            return []
        return self._index(request, range(request.indexed, computed // self._config.block_size))

    def unindex(self, indexed: Sequence[int], planned: int, computed: int) -> None:
        """Undo `index_ahead` for a chunk that was planned up to token `planned` and computed up to `computed`. Requires
        one block per logical block, that is, one group of layers."""
        size = self._config.block_size
        filled = len(indexed) - planned // size + computed // size
        self.pool.forget(indexed[max(0, filled) :])

    def index_logical_block(self, request: Request, logical: int) -> None:
        """Add the blocks of one logical block, which became full and computed, to the prefix index."""
        self.hash_known(request)
        self._index(request, (logical,))
        request.indexed = logical + 1

    def log_prompt(self, request: Request) -> None:
        """Record in which blocks the prompt of a tagged request lies, once it is computed.

        Of several groups of layers the first with full attention stands for all: their blocks are evicted together. Without
        one, a cached prefix may lack its beginning, and nothing is recorded.
        """
        if request.computed < request.prompt_length:
            return
        tag, request.prompt_tag = request.prompt_tag, ""
        log, size = self.pool.log, self._config.block_size
        if log is None or None not in self._config.windows:
            return
        group = self._config.windows.index(None)
        digests = (group_digest(digest, group) for digest in request.hashes[: request.prompt_length // size])
        log.stored(PromptStored(tag, request.prompt_length, size, self.pool.find(digests)))

    def _index(self, request: Request, logical_blocks: Sequence[int]) -> list[int]:
        """Add the blocks of these logical blocks to the prefix index, and return them."""
        if self._groups == 1 and not self._sliding:
            for logical in logical_blocks:
                self.pool.index(request.blocks[logical], request.hashes[logical])
            return [request.blocks[logical] for logical in logical_blocks]
        found: list[int] = []
        for logical in logical_blocks:
            for group in range(self._groups):
                block = request.blocks[logical * self._groups + group]
                if block != HOLE:
                    self.pool.index(block, group_digest(request.hashes[logical], group))
                    found.append(block)
        return found

    def _shares(self, request: Request) -> bool:
        return self._config.prefix_cache and not request.pooling

    # --- invariants --------------------------------------------------------------------------------------------

    def check(self, waiting: Iterable[Request]) -> None:
        """Raise RuntimeError unless a recount from the block tables agrees. Not while planning or settling."""
        tables = [request.blocks for request in (*self.running, *self.finishing)]
        self.pool.check(tables + [fence.blocks for fence in self._fences])
        size, in_flight = self._config.block_size, self.planned > self.settled
        for request in self.running:
            used = len(request.known) if in_flight else request.computed  # a step in flight fills what it was given
            if len(request.blocks) * size - used * self._groups >= size * self._groups:
                raise RuntimeError(f"{request.request_id} wastes a whole block")
            first = first_seen(request.computed, self._config.window, size)
            lags = in_flight and request.freed_leading < first  # its blocks are released when that step is settled
            table, left = request.blocks, request.freed_leading * self._groups
            holes = sum(table[group : left : self._groups].count(HOLE) for group in self._sliding)
            right = holes == table.count(HOLE) == request.freed_leading * len(self._sliding)
            if table and not (right and (request.freed_leading == first or lags)):
                raise RuntimeError(f"{request.request_id} holds blocks outside its window, or lacks some inside it")
        if any(request.blocks or request.slot >= 0 for request in waiting):
            raise RuntimeError("a waiting request holds blocks")
        if len(self._slots) + len(self.running) != self._config.max_num_seqs:
            raise RuntimeError("a slot is lost")
