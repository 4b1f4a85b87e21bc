"""The planner: which requests get tokens in a step, in which order, and which one is preempted for that.

Decoding requests first, then prompts that can be in time, in the policy's order: chunks of running ones, and the queue.
Then late prompts: running ones, and late ones of the queue.
"""

import math
from typing import Final

from sluice_engine.control.step_deadline import Deadline
from sluice_engine.request import Request
from sluice_engine.scheduler.chunking import chunk_context
from sluice_engine.scheduler.load_shedding.deadlines import misses_deadline
from sluice_engine.scheduler.load_shedding.ordered_queue import Entry
from sluice_engine.scheduler.plan import Fork, Join, Plan, Row, StepMode
from sluice_engine.scheduler.policies.service_order import estimate_prefill, rank
from sluice_engine.scheduler.prefill_budget import PrefillBudget, deadline
from sluice_engine.scheduler.state import SchedulerState
from sluice_engine.scheduler.step_draft import StepDraft
from sluice_engine.scheduler.transitions import preempt, start, start_samples

Rank = tuple[bool, float, float, int]  # late, the policy's number, the tenant's counter, order of arrival
BEFORE_LATE: Final[Rank] = (True, -math.inf, 0.0, 0)  # before all late requests of the queue


class StepPlanner:
    """Fills a `StepDraft`. Call `decodes`, then `prompts`, then `plan`."""

    def __init__(self, state: SchedulerState, draft: StepDraft, now: float) -> None:
        self._state, self._draft, self._now = state, draft, now
        self._tables = state.tables
        self._groups = state.config.groups
        self._budget: PrefillBudget | None = None

    def decodes(self) -> None:
        """One token for each decoding request. The engine's hottest loop: its time is part of every inter-token time."""
        state, draft = self._state, self._draft
        running, size, groups = state.running, state.config.block_size, self._groups
        add, targets, kv_tokens = draft.rows.append, draft.itl_targets, 0
        new_row = Row.__new__  # counts its arguments as Row() does, in two thirds of the time
        leaders, default = state.sample_groups.leaders, state.limits.current.itl_target
        some_default = False
        for request in running:  # its tail may be preempted during the loop
            known, start = request.known, request.computed
            left = len(known) - start
            if left != 1:
                if left > 1:
                    draft.prompts.append(request)
                continue
            blocks = request.blocks
            if start * groups >= len(blocks) * size and not self._make_room(request, start + 1):
                continue
            first = -(-start // size) * groups
            if request.forked:
                if not self._own_tail(request, start):
                    continue
                first = self._first_unsent(request, start // size * groups)
            kv_tokens += start + 1
            if request.itl_target is None:
                some_default = True
            else:
                targets.add(request.itl_target)
            new = tuple(blocks[first:]) if len(blocks) > first else ()
            forks = self._start_samples(request) if leaders and request.request_id in leaders else ()
            add(new_row(Row, request.request_id, request.slot, start, (known[start],), True, first, new, 0, forks))
        if some_default:
            targets.add(default)
        draft.kv_tokens, draft.decodes = kv_tokens, len(draft.rows)

    def prompts(self, budget: PrefillBudget) -> None:
        """Chunks of running prompts and, between them in their order, of waiting ones. Late running prompts, which hold
        blocks, come before late waiting ones."""
        state, self._budget = self._state, budget
        started = [(rank(state, r, self._now), r) for r in self._draft.prompts if r.slot >= 0]
        started.sort()
        for place, request in started:
            self._admit(budget, BEFORE_LATE if place[0] else place)
            if budget.tokens <= 0:
                return
            if request.slot < 0:  # preempted for another
                continue
            wanted = self._scorable(request, request.computed)
            if not wanted:
                continue
            chunk = budget.chunk(wanted, request.computed)
            if chunk <= 0:
                return
            if self._room(request) > 0 or self._make_room(request, request.computed + 1):
                self._take(budget, request, min(chunk, self._room(request)))
        self._admit(budget, None)

    def _admit(self, budget: PrefillBudget, before: Rank | None) -> None:
        """Start waiting requests that rank before `before`; none overtakes a head that does not fit yet."""
        state, draft = self._state, self._draft
        if draft.preempted is not None:  # its blocks are for the request that lacked them
            return
        while len(state.running) < state.places and budget.tokens > 0:
            entry = self._head()
            if entry is None or (before is not None and entry[:4] >= before):
                return
            request = entry.request
            hit = self._tables.match(request)
            if not state.admission.can_start(request, hit):
                return
            context = max(len(hit) // self._groups * state.config.block_size, request.swapped_tokens)
            left = self._scorable(request, context)
            chunk = budget.pooling_chunk(left) if request.pooling else budget.chunk(left, context)
            if state.config.window is not None and not request.pooling:  # a pool may hold less than the prompt
                chunk = min(chunk, state.admission.first_room(request, hit))
            if chunk <= 0:
                return
            if not request.prompt_counted:
                request.prompt_counted = True
                draft.prompt_tokens += request.prompt_length
                draft.cached_prompt_tokens += context
            start(state, request, hit, self._now)
            owners = {draft.filling.get(block) or draft.filled_before.get(block) for block in hit}
            draft.dependencies += [(request.request_id, owner) for owner in sorted(filter(None, owners))]
            self._join(request)
            self._take(budget, request, chunk)

    def _scorable(self, request: Request, start: int) -> int:
        """The request's tokens from `start` on; where their logits give the prompt's logprobs, as many as this step has
        room for."""
        remaining = len(request.known) - start
        room = self._state.config.scored_per_step - self._draft.scored
        return min(remaining, room) if request.unscored and remaining - 1 > room else remaining

    def _head(self) -> Entry | None:
        """The head of the queue. A request that has become late in the queue is demoted when it comes to the head."""
        state, now = self._state, self._now
        while (entry := state.waiting.head(now)) is not None and not entry.late:
            request = entry.request
            if not misses_deadline(state, request, entry.work, now):
                break
            if not misses_deadline(state, request, estimate_prefill(state, request).prefill_seconds, now):
                break  # part of its prompt has been cached since it arrived
            state.waiting.demote(request)
        return entry

    def plan(self, number: int) -> Plan:
        """The draft as a value. Hands over the pending scrubs and copies."""
        state, draft = self._state, self._draft
        scrub = tuple(self._tables.tainted)
        self._tables.tainted.clear()
        return Plan(
            step=number,
            rows=tuple(draft.rows),
            joins=tuple(draft.joins),
            preempted=draft.preempted,
            work=draft.work,
            prompt_tokens=draft.prompt_tokens,
            cached_prompt_tokens=draft.cached_prompt_tokens,
            dependencies=tuple(draft.dependencies),
            scrub=scrub,
            has_forks=draft.has_forks,
            copies=(*state.swap.take_copies(), *draft.copies),
            draft_tokens=draft.draft_tokens,
            draft_context=draft.draft_context,
            timed=self._budget is not None and self._budget.cut,
            deadline=self._deadline(),
        )

    def _deadline(self) -> Deadline | None:
        """None where all of the step must be computed: it is not BOUNDED, has more than one chunk, or a request depends on
        what the chunk samples or fills."""
        draft, budget = self._draft, self._budget
        if draft.mode is not StepMode.BOUNDED or budget is None or not budget.alone:
            return None
        one_chunk = len(draft.rows) == draft.decodes + 1 and not draft.rows[-1].samples
        if not one_chunk or draft.scored or draft.dependencies or draft.has_forks:
            return None
        return deadline(self._state, draft, budget.target)

    def _room(self, request: Request) -> int:
        """Tokens that the request could compute now with all available blocks."""
        pool, groups = self._state.pool, self._groups
        return (len(request.blocks) // groups + pool.available // groups) * pool.block_size - request.computed

    def _make_room(self, request: Request, tokens: int) -> bool:
        """Grow the request's table to `tokens`, preempting at most one request in this step. False: not this step."""
        tables = self._tables
        if not self._ensure_available(request, tables.blocks_for(tokens) - len(request.blocks)):
            return False
        tables.grow(request, tokens)
        return True

    def _ensure_available(self, request: Request, need: int) -> bool:
        """Make `need` blocks available for the request, preempting at most one request in this step. False: not this step."""
        state, draft = self._state, self._draft
        if state.pool.can_allocate(need):
            return True
        if draft.preempted is not None or draft.ahead:
            draft.postponed = True
            return False
        candidate = self._next_to_preempt()
        if candidate is None or (candidate is request and len(state.running) > 1 and request.remaining > 1):
            return False  # the last prompt keeps its blocks and waits for others to end
        preempt(state, candidate)
        draft.preempted = candidate.request_id
        return candidate is not request and state.pool.can_allocate(need)

    def _own_tail(self, request: Request, start: int) -> bool:
        """Before a forked request writes at `start`, copy the blocks there that it shares. False: not in this step."""
        tables, size = self._tables, self._state.config.block_size
        if start % size:
            shared = tables.shared(request, start // size)
            if shared and not self._ensure_available(request, len(shared)):
                return False
            # A preemption may have ended the sharing: then there is nothing to copy.
            self._draft.copies += tables.copy_on_write(request, start // size)
        request.forked = False
        return True

    def _first_unsent(self, request: Request, first: int) -> int:
        """The index from which a forked request's blocks are sent to the runner: `first`, or 0 where it has none yet."""
        if request.slot not in self._tables.unsent:
            return first
        self._tables.unsent.discard(request.slot)
        self._join(request)
        return 0

    def _next_to_preempt(self) -> Request | None:
        """The request to preempt: the last of `running` that has no row in this step. While decodes are handed out that
        is the last of all, because they are handed out in order."""
        taken = {row.slot for row in self._draft.rows}
        taken.update(fork.slot for row in self._draft.rows for fork in row.forks)
        return next((request for request in reversed(self._state.running) if request.slot not in taken), None)

    def _join(self, request: Request) -> None:
        known = tuple(request.known) if request.sampling.reads_known else ()
        self._draft.joins.append(
            Join(
                request.request_id,
                request.slot,
                request.sampling,
                request.prompt_length,
                known,
                request.stop_ids if request.sampling.min_tokens else frozenset(),
                request.token_types,
            )
        )

    def _take(self, budget: PrefillBudget, request: Request, chunk: int) -> None:
        draft = self._draft
        self._tables.grow(request, request.computed + chunk)
        for block in self._tables.index_ahead(request, request.computed + chunk):
            draft.filling[block] = request.request_id
        budget.spend(chunk, request.computed)
        draft.prefill_tokens += chunk
        draft.prefill_context += chunk_context(chunk, request.computed)
        self._add_row(request, chunk)

    def _add_row(self, request: Request, count: int) -> None:
        start, joins = request.computed, self._draft.joins
        # Blocks before `start` are in the runner's table, unless the request joins in this very step.
        joined = bool(joins) and joins[-1].slot == request.slot
        first = 0 if joined else self._tables.blocks_for(start)
        samples = count == request.remaining and not request.pooling
        targets = self._targets(request, count) if request.unscored else ()
        self._draft.scored += len(targets)
        self._draft.rows.append(
            Row(
                request_id=request.request_id,
                slot=request.slot,
                start=start,
                tokens=tuple(request.known[start : start + count]),
                samples=samples,
                first_block=first,
                new_blocks=tuple(request.blocks[first:]),
                forks=self._start_samples(request) if samples else (),
                targets=targets,
            )
        )

    def _targets(self, request: Request, count: int) -> tuple[int, ...]:
        """The prompt tokens that follow those of the chunk; after a preemption without those that were reported."""
        start = max(request.computed, request.scored)
        return tuple(request.known[start + 1 : min(request.computed + count + 1, request.prompt_length)])

    def _start_samples(self, request: Request) -> tuple[Fork, ...]:
        """The further samples that start with the row that completes the request's prompt."""
        started, draft = start_samples(self._state, request, self._now), self._draft
        draft.has_forks |= bool(started)
        for sample in started:
            self._join(sample)
            draft.dependencies.append((sample.request_id, request.request_id))
        return tuple(Fork(sample.request_id, sample.slot) for sample in started)
