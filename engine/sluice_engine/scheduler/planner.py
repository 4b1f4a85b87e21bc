"""One plan while it grows: who gets tokens in this step, in which order, and who must make room.

Decoding requests first, then prompts in the policy's order: chunks of those that run, and the queue. The scheduler
keeps the books; this decides.
"""

from typing import TYPE_CHECKING

from sluice_engine.deadline import Deadline
from sluice_engine.request import Request
from sluice_engine.scheduler.budget import PrefillBudget, chunk_context, deadline
from sluice_engine.scheduler.moves import preempt, start, start_twins
from sluice_engine.scheduler.plan import Join, Plan, Row, Twin
from sluice_engine.scheduler.rank import rank
from sluice_law.steptime import StepWork

if TYPE_CHECKING:
    from sluice_engine.scheduler.scheduler import Scheduler


class StepPlanner:
    """Rows handed out so far. Call `decodes`, `prompts`, then `plan`."""

    def __init__(self, scheduler: "Scheduler", now: float, before: "StepPlanner | None" = None) -> None:
        """`before` is the plan that is being run meanwhile, if any: then nobody is preempted, because who ends with
        that step is not known yet."""
        self._scheduler = scheduler
        self._groups = scheduler.config.groups
        self._now = now
        self._ahead = before is not None
        self._filled_before = before.filling if before is not None else {}
        self.postponed = False  # somebody got nothing because nobody may be preempted: settle before the next plan
        self.rows: list[Row] = []
        self.preempted: str | None = None
        self.kv_tokens = 0
        self.itl_targets: set[float] = set()  # of those that decode
        self._joins: list[Join] = []
        self._decodes = 0
        self._prefill_tokens = 0
        self._prefill_context = 0.0
        self._prompt_tokens = 0
        self._cached_prompt_tokens = 0
        self._copies: list[tuple[int, int]] = []
        self.filling: dict[int, str] = {}  # block → the request that fills it in this step
        self._leans: list[tuple[str, str]] = []
        self._forks = False
        self._begun: list[Request] = []  # those whose prompts are not computed yet
        self.draft_tokens = 0
        self.draft_context = 0.0
        self._budget: PrefillBudget | None = None

    def decodes(self) -> None:
        """Every decoding request its one token. The engine's hottest loop: a step's time bounds everybody's."""
        running, size, groups = self._scheduler.running, self._scheduler.config.block_size, self._groups
        add, targets, kv_tokens = self.rows.append, self.itl_targets, 0
        made = tuple.__new__  # a named tuple without its own constructor, which takes three times as long
        leaders, default = self._scheduler.siblings.leaders, self._scheduler.limits.bounds.itl_target
        some_default = False
        for request in running:  # which may lose its tail on the way
            known, start = request.known, request.computed
            left = len(known) - start
            if left != 1:
                if left > 1:
                    self._begun.append(request)
                continue
            blocks = request.blocks
            if start * groups >= len(blocks) * size and not self._make_room(request, start + 1):
                continue
            first = -(-start // size) * groups
            if request.forked:
                if not self._own_tail(request, start):
                    continue
                first = self._unseen(request, start // size * groups)
            kv_tokens += start + 1
            if request.itl_target is None:
                some_default = True
            else:
                targets.add(request.itl_target)
            new = tuple(blocks[first:]) if len(blocks) > first else ()
            twins = self._twins(request) if leaders and request.request_id in leaders else ()
            add(made(Row, (request.request_id, request.slot, start, (known[start],), True, first, new, 0, twins)))
        if some_default:
            targets.add(default)
        self.kv_tokens, self._decodes = kv_tokens, len(self.rows)

    def prompts(self, budget: PrefillBudget) -> None:
        """Chunks of prompts that already run and, between them as the policy has it, of waiting ones."""
        scheduler, self._budget = self._scheduler, budget
        begun = [(rank(scheduler, r, self._now), r) for r in self._begun if r.slot >= 0]
        begun.sort()
        for place, request in begun:
            self._admit(budget, place)
            if budget.tokens <= 0:
                return
            if request.slot < 0:  # it made room for another
                continue
            chunk = budget.chunk(request.remaining, request.computed)
            if chunk <= 0:
                return
            if self._room(request) > 0 or self._make_room(request, request.computed + 1):
                self._take(budget, request, min(chunk, self._room(request)))
        self._admit(budget, None)

    def _admit(self, budget: PrefillBudget, before: tuple[bool, float, float, int] | None) -> None:
        """Waiting requests that rank before `before` begin; nobody overtakes a head that does not fit yet."""
        scheduler = self._scheduler
        if self.preempted is not None:  # what a victim gave up is for those that lacked it
            return
        held = bool(scheduler.running) and self._now < scheduler.late_from
        while len(scheduler.running) < scheduler.places and budget.tokens > 0:
            entry = scheduler.waiting.head(self._now)
            if entry is None or (before is not None and entry[:4] >= before) or (entry.late and held):
                return
            request = entry.request
            hit = scheduler.books.match(request)
            if not scheduler.fitting.fits(request, hit):
                return
            context = max(len(hit) // self._groups * scheduler.config.block_size, request.swapped_tokens)
            left = len(request.known) - context
            chunk = budget.whole(left) if request.whole else budget.chunk(left, context)
            if scheduler.config.window is not None and not request.whole:  # a pool may hold less than the prompt
                chunk = min(chunk, scheduler.fitting.first_room(request, hit))
            if chunk <= 0:
                return
            if not request.prompt_counted:
                request.prompt_counted = True
                self._prompt_tokens += request.prompt_length
                self._cached_prompt_tokens += context
            start(scheduler, request, hit, self._now)
            owners = {self.filling.get(block) or self._filled_before.get(block) for block in hit}
            self._leans += [(request.request_id, owner) for owner in sorted(filter(None, owners))]
            self._join(request)
            self._take(budget, request, chunk)

    def plan(self, number: int) -> Plan:
        """What was handed out, as a value."""
        scrub = tuple(self._scheduler.tainted)
        self._scheduler.tainted.clear()
        return Plan(
            step=number,
            rows=tuple(self.rows),
            joins=tuple(self._joins),
            preempted=self.preempted,
            work=self.work,
            prompt_tokens=self._prompt_tokens,
            cached_prompt_tokens=self._cached_prompt_tokens,
            leans=tuple(self._leans),
            scrub=scrub,
            forks=self._forks,
            copies=(*self._scheduler.swap.take(), *self._copies),
            draft_tokens=self.draft_tokens,
            draft_context=self.draft_context,
            timed=self._budget is not None and self._budget.cut,
            deadline=self._deadline(),
        )

    def _deadline(self) -> Deadline | None:
        """None where all of the step is computed: it has more than one chunk, or somebody waits for what the chunk
        samples or begins from what it fills."""
        one_chunk = len(self.rows) == self._decodes + 1 and not self.rows[-1].samples
        if not one_chunk or self._leans or self._forks or self.draft_tokens or self._budget is None:
            return None
        return deadline(self._scheduler, self, self._budget.target) if self._budget.alone else None

    @property
    def work(self) -> StepWork:
        """What was handed out, drafts left out."""
        return StepWork(self._prefill_tokens, self._prefill_context, self._decodes, self.kv_tokens)

    def _room(self, request: Request) -> int:
        """Tokens that the request could compute now with every block there is."""
        pool, groups = self._scheduler.pool, self._groups
        return (len(request.blocks) // groups + pool.available // groups) * pool.block_size - request.computed

    def _make_room(self, request: Request, tokens: int) -> bool:
        """Grow the request's table to `tokens`, preempting at most one request in this step. False: not this step."""
        books = self._scheduler.books
        if not self._free(request, books.blocks_for(tokens) - len(request.blocks)):
            return False
        books.grow(request, tokens)
        return True

    def _free(self, request: Request, need: int) -> bool:
        """Whether so many blocks can be had for the request, preempting at most one in this step."""
        scheduler = self._scheduler
        if scheduler.pool.can_allocate(need):
            return True
        if self.preempted is not None or self._ahead:
            self.postponed = True
            return False
        victim = self._weakest()
        if victim is None or (victim is request and len(scheduler.running) > 1 and request.remaining > 1):
            return False  # the weakest prompt keeps what it has and waits for others to end
        preempt(scheduler, victim)
        self.preempted = victim.request_id
        return victim is not request and scheduler.pool.can_allocate(need)

    def _own_tail(self, request: Request, start: int) -> bool:
        """Copy on write: before a forked request writes at `start`, the blocks there become its own. False: not in
        this step."""
        books, size = self._scheduler.books, self._scheduler.config.block_size
        if start % size:
            shared = books.shared(request, start // size)
            if shared and not self._free(request, len(shared)):
                return False
            self._copies += books.own(request, start // size)  # the victim may have been the other holder
        request.forked = False
        return True

    def _unseen(self, request: Request, first: int) -> int:
        """From where on the runner must be told a forked request's blocks: `first`, or all where it knows none."""
        if request.slot not in self._scheduler.books.unseen:
            return first
        self._scheduler.books.unseen.discard(request.slot)
        self._join(request)
        return 0

    def _weakest(self) -> Request | None:
        """Who must make room: the last of `running` that has no row in this step. While decodes are handed out that
        is the last of all, because they are handed out in order."""
        taken = {row.slot for row in self.rows}
        taken.update(twin.slot for row in self.rows for twin in row.twins)
        return next((request for request in reversed(self._scheduler.running) if request.slot not in taken), None)

    def _join(self, request: Request) -> None:
        known = tuple(request.known) if request.sampling.remembers else ()
        self._joins.append(
            Join(
                request.request_id,
                request.slot,
                request.sampling,
                request.prompt_length,
                known,
                request.token_types,
            )
        )

    def _take(self, budget: PrefillBudget, request: Request, chunk: int) -> None:
        self._scheduler.books.grow(request, request.computed + chunk)
        for block in self._scheduler.books.promise(request, request.computed + chunk):
            self.filling[block] = request.request_id
        budget.spend(chunk, request.computed)
        self._prefill_tokens += chunk
        self._prefill_context += chunk_context(chunk, request.computed)
        self._add_row(request, chunk)

    def _add_row(self, request: Request, count: int) -> None:
        start = request.computed
        # Blocks before `start` are in the runner's table, unless the request joins in this very step.
        joins = bool(self._joins) and self._joins[-1].slot == request.slot
        first = 0 if joins else self._scheduler.books.blocks_for(start)
        samples = count == request.remaining and not request.whole
        self.rows.append(
            Row(
                request_id=request.request_id,
                slot=request.slot,
                start=start,
                tokens=tuple(request.known[start : start + count]),
                samples=samples,
                first_block=first,
                new_blocks=tuple(request.blocks[first:]),
                twins=self._twins(request) if samples else (),
            )
        )

    def _twins(self, request: Request) -> tuple[Twin, ...]:
        """The further samples that begin with the row that completes the request's prompt."""
        begun = start_twins(self._scheduler, request, self._now)
        self._forks |= bool(begun)
        for twin in begun:
            self._join(twin)
            self._leans.append((twin.request_id, request.request_id))
        return tuple(Twin(twin.request_id, twin.slot) for twin in begun)
