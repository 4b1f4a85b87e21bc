"""Iteration-level batching: each step hands tokens to requests until their `computed` catches up with `known`.

Order within a step: every decoding request its one token, so a stream never stalls behind a prompt; then prompts in
the order of the policy, running and waiting ones. Out of blocks, the weakest running request is preempted by recompute
(one victim per step; its full blocks stay cached) and comes back in its turn, when its whole sequence and a margin fit.

A `Scheduler` is the books (`books.py`: who runs with which blocks) and the queue (`waiting.py`), and what is done to
them: a step is planned (`planner.py`) and settled (`settler.py`). No torch, no clock: time is an argument.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sluice_engine.admission import Limits, predicted_wait
from sluice_engine.request import Request
from sluice_engine.scheduler.books import Books
from sluice_engine.scheduler.budget import MINIMUM_CHUNK, PrefillBudget, chunk_context
from sluice_engine.scheduler.config import SchedulerConfig
from sluice_engine.scheduler.correction import TailCorrection
from sluice_engine.scheduler.door import Refusal, check_possible, closed, too_late
from sluice_engine.scheduler.drafting import add_drafts
from sluice_engine.scheduler.fitting import Fitting
from sluice_engine.scheduler.foresight import foresee, foreseeable, room_ahead
from sluice_engine.scheduler.lengths import OutputLengths
from sluice_engine.scheduler.plan import Outcome, Plan
from sluice_engine.scheduler.planner import StepPlanner
from sluice_engine.scheduler.policies import POLICIES, Outlook
from sluice_engine.scheduler.settler import StepSettler
from sluice_engine.scheduler.siblings import Siblings
from sluice_engine.scheduler.speculation import Speculation
from sluice_engine.scheduler.steered import park_one, waits_for_word
from sluice_engine.scheduler.swap import Swap
from sluice_engine.scheduler.tenants import PROMPT_WEIGHT, TenantCounters
from sluice_engine.scheduler.waiting import WaitingQueue
from sluice_law.limit import TRUSTED_STEPS
from sluice_law.steptime import StepTimeModel, StepWork


class Scheduler:
    """Requests, their blocks and the rule that shares a step among them."""

    def __init__(self, config: SchedulerConfig, limits: Limits) -> None:
        self.config = config
        self.limits = limits
        self.policy = POLICIES[config.policy]
        self.counters = TenantCounters()
        self.lengths = OutputLengths()
        self.correction = TailCorrection()
        self.speculation = Speculation(config.speculation)
        self.books = Books(config)
        self.swap = Swap(config)
        self.fitting = Fitting(config, limits, self.books, self.lengths)
        self.waiting = WaitingQueue(self.policy, self.counters)
        self.siblings = Siblings()
        self.parked: dict[str, Request] = {}  # steered ones that lost their blocks between two tokens
        self.requests: dict[str, Request] = {}
        self.draining = False
        self.preemptions = 0
        self.swaps = 0  # preemptions that copied out
        self.residence: float | None = None  # mean seconds that a request runs, smoothed
        self.mean_output: float | None = None  # mean generated tokens of ended requests, smoothed
        self.model: StepTimeModel | None = None  # as of the last plan
        self._arrivals = 0
        self._under_way: tuple[Plan, StepPlanner] | None = None  # planned last and not settled
        self._foreseen = 0  # the last step whose effect was booked before it had ended
        self.pool = self.books.pool
        self.running = self.books.running
        self.tainted = self.books.tainted

    # --- arrivals and departures -------------------------------------------------------------------------------

    def submit(self, request: Request, siblings: Sequence[Request] = ()) -> Refusal | None:
        """Queue a request and further samples of its prompt, or say why not. Raises ValueError for what could never
        run."""
        group = (request, *siblings)
        known = next((each.request_id for each in group if each.request_id in self.requests), None)
        if known is not None:
            raise ValueError(f"request {known} is already here")
        check_possible(request, self.config)
        refused = closed(self)
        if refused is not None:
            return refused
        self.books.hash_known(request)
        for number, each in enumerate(group):
            each.order = self._arrivals + number
            each.hashes = list(request.hashes)
        outlook = self._outlook(request)
        refused = too_late(self, request, outlook)
        if refused is None:
            for each in group:
                self.enrol(each)
            self.waiting.push(request, outlook)
            self.siblings.attach(request, siblings)
        return refused

    def cancel(self, request_id: str) -> bool:
        """End a request now; its blocks are free as soon as no step writes them. Says whether it was here."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        if request.begun is not None:
            self.end(request, forget=False)
            return True
        del self.requests[request_id]
        self.speculation.forget(request_id)
        if self.parked.pop(request_id, None) is None and not self.siblings.discard(request):
            self.waiting.remove(request)
            self.swap.drop(request)
            self._hand_on(request)
        return True

    def predicted_wait(self) -> float:
        """Seconds until a request that came now would start."""
        residence = self.residence if self.residence is not None else self.limits.bounds.ttft_target
        return predicted_wait(len(self.waiting), len(self.running), self.limits.concurrency, residence)

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

    @property
    def tokens_in_flight(self) -> int:
        """Known tokens of everything here, running or waiting."""
        return self.waiting.tokens + sum(len(request.known) for request in self.running)

    # --- one step ----------------------------------------------------------------------------------------------

    def plan(self, now: float, model: StepTimeModel | None = None) -> Plan | None:
        """The next step, or None when there is nothing to compute. Blocks are taken here, tokens counted at settle."""
        self.model = model
        while True:
            step = StepPlanner(self, now)
            step.decodes()
            budget = self._prefill_budget(step)
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
        row does more than compute its tokens and sample one (drafts, forks)."""
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
        step.prompts(self._prefill_budget(step))
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
        self.books.settled = plan.step
        if self._under_way is not None and self._under_way[0] is plan:
            self._under_way = None
        settler = StepSettler(self, now)
        settler.step(plan, sampled, errors, accepted)
        return settler.outcomes

    def decode_last(self, steps: int, now: float, token: int) -> list[Outcome]:
        """The last of so many decode-only steps, for `advance`, which has taken the others: what can end, ends here."""
        self.books.planned = self.books.settled = self.steps + steps
        settler = StepSettler(self, now)
        for request in list(self.running):
            settler.computed(request, request.computed + 1, token)
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

    # --- what planning and settling do -------------------------------------------------------------------------

    def _planned(self, step: StepPlanner) -> Plan:
        self.books.planned += 1
        plan = step.plan(self.books.planned)
        self._under_way = plan, step
        return plan

    def start(self, request: Request, hit: list[int], now: float) -> None:
        """A waiting request begins to run, from the cached blocks in `hit`."""
        self.waiting.remove(request)
        self.books.start(request, hit)
        if request.swapped_tokens > request.computed:
            self.books.grow(request, request.swapped_tokens)
            request.computed = request.swapped_tokens
            self.swap.back(request, len(hit))
        else:
            self.swap.drop(request)
        if request.first_scheduled_at is None:
            request.first_scheduled_at = now
            request.cached_tokens = request.computed
            self.counters.charge(request.tenant, PROMPT_WEIGHT * (request.prompt_length - request.computed))

    def preempt(self, victim: Request, forget: bool = False) -> None:
        """Back to its place in the queue; its full blocks stay cached (unless it must `forget` them). The rest is
        computed again, or copied out and back where that is predicted to be quicker."""
        between = waits_for_word(victim)
        if not forget and self.swap.pays(victim, self.model):
            self.swap.out(victim)
            self.swaps += 1
        self.books.leave(victim, forget)
        victim.preemptions += 1
        self.preemptions += 1
        if between:
            self.parked[victim.request_id] = victim
        else:
            self.queue(victim)

    def end(self, request: Request, forget: bool) -> None:
        """A running request is over; `forget` where what it computed cannot be trusted."""
        del self.requests[request.request_id]
        self.speculation.forget(request.request_id)
        self.books.leave(request, forget)
        self._hand_on(request)

    def twins(self, request: Request, now: float) -> list[Request]:
        """Siblings that begin with the step that completes the request's prompt, from its blocks; those that have no
        place queue, and find the prompt's full blocks in the prefix cache."""
        begun: list[Request] = []
        for twin in self.siblings.take(request):
            if len(self.running) < self.places and self.fitting.fits(twin, request.blocks):
                self.books.fork(request, twin, request.prompt_length)
                self.books.unseen.discard(twin.slot)  # the row says so
                twin.first_scheduled_at, twin.cached_tokens = now, request.cached_tokens
                begun.append(twin)
            else:
                self.queue(twin)
        return begun

    def enrol(self, request: Request) -> None:
        """The request is here, behind all that came so far."""
        request.order = self._arrivals
        self._arrivals += 1
        self.requests[request.request_id] = request

    def queue(self, request: Request) -> None:
        """The request waits for its turn."""
        self.books.hash_known(request)
        self.waiting.push(request, self._outlook(request))

    def _hand_on(self, request: Request) -> None:
        """Of the samples that waited for one that has left, the first takes its place."""
        others = self.siblings.take(request)
        if others:
            self.queue(others[0])
            self.siblings.attach(others[0], others[1:])

    # --- what planning asks ------------------------------------------------------------------------------------

    def rank(self, request: Request, now: float) -> tuple[float, float, int]:
        """Where a running prompt stands among waiting requests: comparable with the head of `waiting` (its first
        three fields)."""
        number = self.policy.number(request, self._outlook(request))
        if self.policy.patience is not None and number < now and not request.delivered:
            number += self.policy.patience
        return number, self.counters.served(request.tenant), request.order

    def itl_target(self, request: Request) -> float:
        """Seconds between two tokens that the request may expect."""
        return self.limits.bounds.itl_target if request.itl_target is None else request.itl_target

    def _outlook(self, request: Request) -> Outlook:
        cached = request.computed if request.slot >= 0 else len(self.books.match(request)) * self.config.block_size
        tokens, seconds = len(request.known) - cached, 0.0
        if self.model is not None and self.model.steps >= TRUSTED_STEPS:
            work = StepWork(prefill_tokens=tokens, prefill_context=chunk_context(tokens, cached))
            seconds = self.model.predict(work)
        return Outlook(tokens, seconds, self.limits.bounds.ttft_target)

    def _prefill_budget(self, step: StepPlanner) -> PrefillBudget:
        bounds, tail = self.limits.bounds, self.correction.tail()
        return PrefillBudget(
            tokens=max(MINIMUM_CHUNK, bounds.max_batched_tokens - len(step.rows)),
            model=self.model,
            decode=StepWork(sequences=len(step.rows), kv_tokens=step.kv_tokens),
            itl_targets=[target / tail for target in step.itl_targets],
            itl_default=bounds.itl_target / tail,
        )
