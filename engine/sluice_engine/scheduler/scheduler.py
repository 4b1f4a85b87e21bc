"""Iteration-level batching: each step hands tokens to requests until their `computed` catches up with `known`.

Order within a step: every decoding request its one token, so a stream never stalls behind a prompt; then prompts in
the order of the policy, running and waiting ones. Out of blocks, the weakest running request is preempted by recompute
(one victim per step; its full blocks stay cached) and comes back in its turn, when its whole sequence and a margin fit.

A `Scheduler` is the books (`books.py`: who runs with which blocks) and the queue (`waiting.py`), and what is done to
them: a step is planned (`planner.py`) and settled (`settler.py`), and requests move between the queue, the running ones
and the end (`moves.py`). No torch, no clock: time is an argument.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sluice_engine.admission import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler.books import Books
from sluice_engine.scheduler.budget import prefill_budget
from sluice_engine.scheduler.config import SchedulerConfig
from sluice_engine.scheduler.correction import TailCorrection
from sluice_engine.scheduler.door import (
    Refusal,
    check_possible,
    closed,
    crowded_out,
    prospect,
    too_late,
    weight_of,
)
from sluice_engine.scheduler.drafting import add_drafts
from sluice_engine.scheduler.fitting import Fitting
from sluice_engine.scheduler.foresight import foresee, foreseeable, room_ahead
from sluice_engine.scheduler.lengths import OutputLengths
from sluice_engine.scheduler.moves import displace, end, enrol, hand_on
from sluice_engine.scheduler.plan import Outcome, Plan
from sluice_engine.scheduler.planner import StepPlanner
from sluice_engine.scheduler.policies import POLICIES
from sluice_engine.scheduler.rank import outlook_of
from sluice_engine.scheduler.settler import StepSettler
from sluice_engine.scheduler.siblings import Siblings
from sluice_engine.scheduler.speculation import Speculation
from sluice_engine.scheduler.steered import park_one
from sluice_engine.scheduler.swap import Swap
from sluice_engine.scheduler.tenants import TenantCounters
from sluice_engine.scheduler.waiting import WaitingQueue
from sluice_law.steptime import StepTimeModel


class Scheduler:
    """Requests, their blocks and the rule that shares a step among them."""

    def __init__(self, config: SchedulerConfig, limits: Limits) -> None:
        self.config = config
        self.limits = limits
        self.policy = POLICIES[config.policy]
        self.counters = TenantCounters()
        self.lengths = OutputLengths()
        self.correction = TailCorrection()
        self.overshoot = TailCorrection()  # of steps that gave something up, beyond their deadline
        self.speculation = Speculation(config.speculation)
        self.books = Books(config)
        self.swap = Swap(config)
        self.fitting = Fitting(config, limits, self.books, self.lengths)
        self.waiting = WaitingQueue(self.policy, self.counters)
        self.siblings = Siblings()
        self.parked: dict[str, Request] = {}  # steered ones that lost their blocks between two tokens
        self.requests: dict[str, Request] = {}
        self.draining = False
        self.arrivals = 0  # orders given out
        self.preemptions = 0
        self.swaps = 0  # preemptions that copied out
        self.residence: float | None = None  # mean seconds that a request runs, smoothed
        self.mean_output: float | None = None  # mean generated tokens of ended requests, smoothed
        self.mean_prompt: float | None = None  # mean prompt tokens that they had to compute, smoothed
        self.model: StepTimeModel | None = None  # as of the last plan
        self.clock = -math.inf  # of the last plan or settling, seconds
        self.late_from = -math.inf  # until then what runs and who can be in time need all there is
        self._under_way: tuple[Plan, StepPlanner] | None = None  # planned last and not settled
        self._foreseen = 0  # the last step whose effect was booked before it had ended
        self.pool = self.books.pool
        self.running = self.books.running
        self.tainted = self.books.tainted

    # --- arrivals and departures -------------------------------------------------------------------------------

    def submit(self, request: Request, siblings: Sequence[Request] = ()) -> Refusal | None:
        """Queue a request and further samples of its prompt. Says whom that refuses and why: the request itself, or one
        that waited and is displaced by it. Raises ValueError for what could never run."""
        group = (request, *siblings)
        known = next((each.request_id for each in group if each.request_id in self.requests), None)
        if known is not None:
            raise ValueError(f"request {known} is already here")
        check_possible(request, self.config)
        weight = weight_of(self, request, len(group))
        refused = closed(self, request)
        if refused is not None:
            return refused
        self.books.hash_known(request)
        for number, each in enumerate(group):
            each.order = self.arrivals + number
            each.hashes = list(request.hashes)
        outlook = outlook_of(self, request)
        seen = prospect(self, request, outlook)
        refused = too_late(request, seen) or crowded_out(self, request, weight, seen.in_time)
        if refused is not None:
            if refused.request_id == request.request_id:
                return refused
            displace(self, self.requests[refused.request_id])
        if seen.given_up or not seen.in_time:
            self.late_from = self.now(request) + self.limits.bounds.ttft_target
        for other in seen.given_up:
            if other.request_id in self.requests:
                self.waiting.give_up(other)
        for each in group:
            enrol(self, each)
        self.waiting.push(request, outlook, late=not seen.in_time)
        self.waiting.displaceable.add(request.request_id, (request.priority, seen.in_time), request.tenant, weight)
        self.siblings.attach(request, siblings)
        return refused

    def cancel(self, request_id: str) -> bool:
        """End a request now; its blocks are free as soon as no step writes them. Says whether it was here."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        if request.begun is not None:
            end(self, request, forget=False)
            return True
        del self.requests[request_id]
        self.speculation.forget(request_id)
        if self.parked.pop(request_id, None) is None and not self.siblings.discard(request):
            self.waiting.remove(request)
            self.swap.drop(request)
            hand_on(self, request)
        return True

    def now(self, newcomer: Request) -> float:
        """The present, as the door can know it: a newcomer may have arrived elsewhere, some time ago."""
        return max(self.clock, newcomer.arrived_at)

    @property
    def places(self) -> int:
        """Requests that may run at once."""
        return min(self.limits.concurrency, self.config.max_num_seqs)

    @property
    def steps(self) -> int:
        """Planned so far."""
        return self.books.planned

    @property
    def leans_ahead(self) -> Sequence[tuple[str, str]]:
        """The leans of a step that was planned and not settled."""
        return () if self._under_way is None else self._under_way[0].leans

    def full(self, request: Request) -> bool:
        """Whether the request has all the tokens that it may have."""
        longest = self.config.max_model_length
        return request.generated >= request.max_tokens or len(request.known) >= longest

    def itl_target(self, request: Request) -> float:
        """Seconds between two tokens that the request may expect."""
        return self.limits.bounds.itl_target if request.itl_target is None else request.itl_target

    @property
    def tokens_in_flight(self) -> int:
        """Known tokens of everything here, running or waiting."""
        return self.waiting.tokens + sum(len(request.known) for request in self.running)

    # --- one step ----------------------------------------------------------------------------------------------

    def plan(self, now: float, model: StepTimeModel | None = None) -> Plan | None:
        """The next step, or None when there is nothing to compute. Blocks are taken here, tokens counted at settle."""
        self.model, self.clock = model, now
        while True:
            step = StepPlanner(self, now)
            step.decodes()
            budget = prefill_budget(self, step)
            step.prompts(budget)
            if step.rows and self.speculation.open(self.steps + 1):
                add_drafts(self, step, budget.tokens)
            if step.rows:
                return self._planned(step)
            if step.preempted is None and not park_one(self):
                return None
            # A victim that only shared its blocks made no room: the next one goes.

    def plan_ahead(self, now: float, model: StepTimeModel | None = None) -> Plan | None:
        """The next step while the last one that was planned still runs, tokens of which it names PENDING. None where
        that has to be settled first: nothing can be computed without what it brings, somebody has to make room, or a
        row does more than compute its tokens and sample one (drafts, forks), or may do less (a deadline)."""
        if self._under_way is None:
            return None
        plan, before = self._under_way
        if before.postponed or self.speculation.open(self.steps + 1) or not foreseeable(self, plan):
            return None
        if self._foreseen < plan.step:
            self._foreseen = plan.step
            foresee(self, plan)
        if not room_ahead(self):
            return None
        self.model = model
        step = StepPlanner(self, now, before)
        step.decodes()
        step.prompts(prefill_budget(self, step))
        return self._planned(step) if step.rows else None

    def settle(
        self,
        plan: Plan,
        sampled: Sequence[int],
        now: float,
        errors: Mapping[str, str] = MappingProxyType({}),
        accepted: Mapping[str, int] = MappingProxyType({}),
    ) -> list[Outcome]:
        """Book what a step computed. `sampled` has one token per sampling row, in order, and `accepted` by request how
        many draft tokens stand before it; a request named in `errors` ends with that sentence, its token is ignored."""
        self.books.settled, self.clock = plan.step, now
        if self._under_way is not None and self._under_way[0].step == plan.step:
            self._under_way = None
        settler = StepSettler(self, now)
        settler.step(plan, sampled, errors, accepted)
        return settler.outcomes

    def check(self) -> None:
        """Raise RuntimeError unless the books add up, recounted from the block tables. Call between steps."""
        waiting = list(self.waiting)
        aside = [*self.siblings, *self.parked.values()]
        self.books.check(waiting + aside)
        self.swap.check(waiting + aside)
        if len(self.requests) != len(self.running) + len(self.books.retired) + len(waiting) + len(aside):
            raise RuntimeError("a request is neither running nor waiting")
        if self.waiting.tokens != sum(len(request.known) for request in waiting):
            raise RuntimeError("the queue's tokens do not add up")

    def _planned(self, step: StepPlanner) -> Plan:
        self.books.planned += 1
        plan = step.plan(self.books.planned)
        self._under_way = plan, step
        return plan
