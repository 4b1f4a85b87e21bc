"""One plan while it grows: who gets tokens in this step, in which order, and who must make room.

Decoding requests first, then chunks of running prompts, then the queue. The scheduler keeps the books; this decides.
"""

from typing import TYPE_CHECKING

from sluice_engine.request import Request
from sluice_engine.scheduler.budget import PrefillBudget, chunk_context
from sluice_engine.scheduler.plan import Join, Plan, Row
from sluice_law.steptime import StepWork

if TYPE_CHECKING:
    from sluice_engine.scheduler.scheduler import Scheduler


class StepPlanner:
    """Rows handed out so far. Call `decodes`, `prefills`, `admit` in that order, then `plan`."""

    def __init__(self, scheduler: "Scheduler") -> None:
        self._scheduler = scheduler
        self.rows: list[Row] = []
        self.preempted: str | None = None
        self.kv_tokens = 0
        self._joins: list[Join] = []
        self._decodes = 0
        self._prefill_tokens = 0
        self._prefill_context = 0.0
        self._prompt_tokens = 0
        self._cached_prompt_tokens = 0

    def decodes(self) -> None:
        """Every decoding request its one token."""
        running = self._scheduler.running
        index = 0
        while index < len(running):  # the list may lose its tail on the way
            request = running[index]
            index += 1
            if request.remaining == 1 and self._make_room(request, request.computed + 1):
                self.kv_tokens += request.computed + 1
                self._decodes += 1
                self._add_row(request, 1)

    def prefills(self, budget: PrefillBudget) -> None:
        """Chunks of prompts that already run, in order of arrival."""
        running = self._scheduler.running
        index = 0
        while index < len(running) and budget.tokens > 0:
            request = running[index]
            index += 1
            if request.remaining <= 1:
                continue
            chunk = budget.chunk(request.remaining, request.computed)
            if chunk <= 0:
                return
            if self._room(request) > 0 or self._make_room(request, request.computed + 1):
                self._take(budget, request, min(chunk, self._room(request)))

    def admit(self, budget: PrefillBudget, now: float) -> None:
        """Waiting requests, first come first served: nobody overtakes a head that does not fit yet."""
        scheduler = self._scheduler
        places = min(scheduler.limits.concurrency, scheduler.config.max_num_seqs)
        while scheduler.waiting and len(scheduler.running) < places and budget.tokens > 0:
            request = scheduler.waiting[0]
            hit = scheduler.match(request)
            if not scheduler.fits(request, hit):
                return
            context = len(hit) * scheduler.config.block_size
            chunk = budget.chunk(len(request.known) - context, context)
            if chunk <= 0:
                return
            if request.first_scheduled_at is None:
                self._prompt_tokens += request.prompt_length
                self._cached_prompt_tokens += context
            scheduler.start(request, hit, now)
            self._joins.append(Join(request.request_id, request.slot, request.sampling))
            self._take(budget, request, chunk)

    def plan(self, number: int) -> Plan:
        """What was handed out, as a value."""
        return Plan(
            step=number,
            rows=tuple(self.rows),
            joins=tuple(self._joins),
            preempted=self.preempted,
            work=StepWork(self._prefill_tokens, self._prefill_context, self._decodes, self.kv_tokens),
            prompt_tokens=self._prompt_tokens,
            cached_prompt_tokens=self._cached_prompt_tokens,
        )

    def _room(self, request: Request) -> int:
        """Tokens that the request could compute now with every block there is."""
        pool = self._scheduler.pool
        return (len(request.blocks) + pool.available) * pool.block_size - request.computed

    def _make_room(self, request: Request, tokens: int) -> bool:
        """Grow the request's table to `tokens`, preempting at most one request in this step. False: not this step."""
        scheduler = self._scheduler
        need = scheduler.blocks_for(tokens) - len(request.blocks)
        if not scheduler.pool.can_allocate(need):
            if self.preempted is not None:
                return False
            victim = scheduler.running[-1]
            if victim is request and len(scheduler.running) > 1 and request.remaining > 1:
                return False  # the latest prompt keeps what it has and waits for others to end
            scheduler.preempt(victim)
            self.preempted = victim.request_id
            if victim is request or not scheduler.pool.can_allocate(need):
                return False
        scheduler.grow(request, tokens)
        return True

    def _take(self, budget: PrefillBudget, request: Request, chunk: int) -> None:
        self._scheduler.grow(request, request.computed + chunk)
        budget.spend(chunk, request.computed)
        self._prefill_tokens += chunk
        self._prefill_context += chunk_context(chunk, request.computed)
        self._add_row(request, chunk)

    def _add_row(self, request: Request, count: int) -> None:
        start = request.computed
        # Blocks before `start` are in the runner's table, unless the request joins in this very step.
        joins = bool(self._joins) and self._joins[-1].slot == request.slot
        first = 0 if joins else self._scheduler.blocks_for(start)
        self.rows.append(
            Row(
                request_id=request.request_id,
                slot=request.slot,
                start=start,
                tokens=tuple(request.known[start : start + count]),
                samples=count == request.remaining,
                first_block=first,
                new_blocks=tuple(request.blocks[first:]),
            )
        )
