"""Iteration-level batching: each step hands tokens to requests until their `computed` catches up with `known`.

Order within a step: every decoding request its one token, so a stream never stalls behind a prompt; then prompts in
the order of the policy, running and waiting ones. Out of blocks, the weakest running request is preempted by recompute
(one victim per step; its full blocks stay cached) and comes back in its turn, when its whole sequence and a margin fit.
`running` is in order of strength, which is aged priority, then arrival: the strongest always advances.

No torch, no clock: time is an argument.
"""

from bisect import insort
from collections.abc import Mapping, Sequence

from sluice_engine.admission import Limits, predicted_wait
from sluice_engine.blocks import BlockPool, extend_hashes
from sluice_engine.request import Request
from sluice_engine.scheduler.budget import MINIMUM_CHUNK, PrefillBudget, chunk_context
from sluice_engine.scheduler.config import SchedulerConfig
from sluice_engine.scheduler.correction import TailCorrection
from sluice_engine.scheduler.door import Refusal, check_possible, closed, too_late
from sluice_engine.scheduler.forecast import predicted_peak
from sluice_engine.scheduler.lengths import OutputLengths
from sluice_engine.scheduler.plan import Finish, Outcome, Plan
from sluice_engine.scheduler.planner import StepPlanner
from sluice_engine.scheduler.policies import POLICIES, Outlook, aged_arrival
from sluice_engine.scheduler.tenants import OUTPUT_WEIGHT, PROMPT_WEIGHT, TenantCounters
from sluice_engine.scheduler.waiting import WaitingQueue
from sluice_law.limit import TRUSTED_STEPS
from sluice_law.steptime import StepTimeModel, StepWork


class Scheduler:
    """Requests, their blocks and the rule that shares a step among them."""

    def __init__(self, config: SchedulerConfig, limits: Limits) -> None:
        self.config = config
        self.limits = limits
        self.pool = BlockPool(config.num_blocks, config.block_size)
        self.policy = POLICIES[config.policy]
        self.counters = TenantCounters()
        self.waiting = WaitingQueue(self.policy, self.counters)
        self.running: list[Request] = []  # strongest first
        self.requests: dict[str, Request] = {}
        self.draining = False
        self.preemptions = 0
        self.tainted: list[int] = []  # blocks of failed requests, for the runner to scrub before the next step
        self.residence: float | None = None  # mean seconds that a request runs, smoothed
        self.mean_output: float | None = None  # mean generated tokens of ended requests, smoothed
        self.lengths = OutputLengths()
        self.correction = TailCorrection()
        self.model: StepTimeModel | None = None  # as of the last plan
        self._arrivals = 0
        self._departures = 0  # of running requests
        self._kept_out: tuple[str, int, float] | None = None  # by the predicted peak: whom, as of which departure
        self._slots = list(range(config.max_num_seqs - 1, -1, -1))
        self._steps = 0

    # --- arrivals and departures -------------------------------------------------------------------------------

    def submit(self, request: Request) -> Refusal | None:
        """Queue a request, or say why not. Raises ValueError for one that could never run."""
        if request.request_id in self.requests:
            raise ValueError(f"request {request.request_id} is already here")
        check_possible(request, self.config)
        refused = closed(self)
        if refused is not None:
            return refused
        self._hash_known(request)
        request.order = self._arrivals
        outlook = self._outlook(request)
        refused = too_late(self, request, outlook)
        if refused is None:
            self._arrivals += 1
            self.requests[request.request_id] = request
            self.waiting.push(request, outlook)
        return refused

    def cancel(self, request_id: str) -> bool:
        """End a request now; its blocks are free at once. Says whether it was here. Call between steps."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        if request.slot < 0:
            self.waiting.remove(request)
            del self.requests[request_id]
        else:
            self._end(request, forget=False)
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
    def tokens_in_flight(self) -> int:
        """Known tokens of everything here, running or waiting."""
        return self.waiting.tokens + sum(len(request.known) for request in self.running)

    # --- one step ----------------------------------------------------------------------------------------------

    def plan(self, now: float, model: StepTimeModel | None = None) -> Plan | None:
        """The next step, or None when there is nothing to compute. Blocks are taken here, tokens counted at settle."""
        self.model = model
        while True:
            step = StepPlanner(self)
            step.decodes()
            step.prompts(self._prefill_budget(step, model), now)
            if step.rows:
                self._steps += 1
                return step.plan(self._steps)
            if step.preempted is None:
                return None
            # A victim that only shared its blocks made no room: the next one goes.

    def settle(
        self, plan: Plan, sampled: Sequence[int], now: float, errors: Mapping[str, str] | None = None
    ) -> list[Outcome]:
        """Book what a step computed. `sampled` has one token per sampling row, in order; a request named in `errors`
        ends with that sentence and its token is ignored."""
        outcomes: list[Outcome] = []
        tokens = iter(sampled)
        unfounded = _unfounded(plan, errors) if errors else frozenset()
        for row in plan.rows:
            token = next(tokens) if row.samples else None
            request = self.requests.get(row.request_id)
            if request is None:
                continue
            if errors and row.request_id in errors:
                outcomes.append(self._outcome(request, (), "error", errors[row.request_id], now))
                self._end(request, forget=True)
                continue
            if row.request_id in unfounded:
                self.tainted += self.preempt(request, forget=True)
                continue
            request.computed += len(row.tokens)
            self._index(request)
            if token is not None:
                outcomes.append(self._deliver(request, token, now))
        self._learn_overrun(plan, outcomes)
        return outcomes

    def decode_last(self, steps: int, now: float, token: int) -> list[Outcome]:
        """The last of so many decode-only steps, for `advance`, which has taken the others: what can end, ends here."""
        self._steps += steps
        outcomes: list[Outcome] = []
        for request in list(self.running):
            request.computed += 1
            self._index(request)
            outcomes.append(self._deliver(request, token, now))
        return outcomes

    def check(self) -> None:
        """Raise RuntimeError unless the books add up, recounted from the block tables. Call between steps."""
        self.pool.check(request.blocks for request in self.running)
        size = self.config.block_size
        for request in self.running:
            if len(request.blocks) * size - request.computed >= size:
                raise RuntimeError(f"{request.request_id} wastes a whole block")
        if any(request.blocks or request.slot >= 0 for request in self.waiting):
            raise RuntimeError("a waiting request holds blocks")
        if len(self._slots) + len(self.running) != self.config.max_num_seqs:
            raise RuntimeError("a slot is lost")
        if len(self.requests) != len(self.running) + len(self.waiting):
            raise RuntimeError("a request is neither running nor waiting")
        if self.waiting.tokens != sum(len(request.known) for request in self.waiting):
            raise RuntimeError("the queue's tokens do not add up")

    # --- what planning asks ------------------------------------------------------------------------------------

    def match(self, request: Request) -> list[int]:
        """Cached blocks that this waiting request can start from. Its last token is always left to compute, so the
        block that holds it is never shared."""
        if not self.config.prefix_cache:
            return []
        return self.pool.match(request.hashes[: (len(request.known) - 1) // self.config.block_size])

    def fits(self, request: Request, hit: Sequence[int]) -> bool:
        """Whether a waiting request may run: it fits now, and so does what all will hold at the predicted peak."""
        if not self.running:
            return True
        if not self.fits_now(request, hit):
            return False
        if not self.config.predicted_admission:
            return True
        most = self.limits.bounds.kv_watermark * self.config.num_blocks
        asked = (request.request_id, self._departures, most)
        if asked == self._kept_out:  # who was kept out stays so until somebody gives blocks back
            return False
        fits = self._predicted_peak(request, hit) <= most
        self._kept_out = None if fits else asked
        return fits

    def fits_now(self, request: Request, hit: Sequence[int]) -> bool:
        """Whether its whole sequence, what running prompts still need and a block for each running request fit.
        Without that margin a long prompt is admitted, preempted and admitted again."""
        need = self.blocks_for(len(request.known) + 1) - len(hit)
        taken = need + self.pool.unheld(hit) + sum(self._owed(other) for other in self.running)
        if self.pool.held + taken > self.limits.bounds.kv_watermark * self.config.num_blocks:
            return False
        return taken + len(self.running) <= self.pool.available

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-tokens // self.config.block_size)

    def grow(self, request: Request, tokens: int) -> None:
        """Give the request's table the blocks for `tokens` tokens. Raises MemoryError where there are none."""
        need = self.blocks_for(tokens) - len(request.blocks)
        if need > 0:
            request.blocks += self.pool.allocate(need)

    def start(self, request: Request, hit: list[int], now: float) -> None:
        """A waiting request begins to run, from the cached blocks in `hit`."""
        self.waiting.remove(request)
        self.pool.acquire(hit)
        request.blocks = list(hit)
        request.computed = len(hit) * self.config.block_size
        request.indexed = len(hit)
        request.slot = self._slots.pop()
        insort(self.running, request, key=_strength)
        if request.first_scheduled_at is None:
            request.first_scheduled_at = now
            request.cached_tokens = request.computed
            self.counters.charge(request.tenant, PROMPT_WEIGHT * (request.prompt_length - request.computed))

    def preempt(self, victim: Request, forget: bool = False) -> list[int]:
        """Back to its place in the queue; its full blocks stay cached (unless it must `forget` them), the rest is
        computed again. Returns blocks that nobody holds any more."""
        self.running.remove(victim)
        dropped = self._release(victim, forget)
        victim.preemptions += 1
        self.preemptions += 1
        self._hash_known(victim)
        self.waiting.push(victim, self._outlook(victim))
        return dropped

    def promise(self, request: Request, computed: int) -> list[int]:
        """Index the prompt's blocks that this step fills, so that one that starts behind it in the same step shares
        them: in each layer the keys and values of the whole batch are written before any is read. Returns them."""
        if not self.config.prefix_cache:
            return []
        filled = range(request.indexed, computed // self.config.block_size)
        for block in filled:
            self.pool.index(request.blocks[block], request.hashes[block])
        return [request.blocks[block] for block in filled]

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
        cached = request.computed if request.slot >= 0 else len(self.match(request)) * self.config.block_size
        tokens, seconds = len(request.known) - cached, 0.0
        if self.model is not None and self.model.steps >= TRUSTED_STEPS:
            work = StepWork(prefill_tokens=tokens, prefill_context=chunk_context(tokens, cached))
            seconds = self.model.predict(work)
        return Outlook(tokens, seconds, self.limits.bounds.ttft_target)

    def _predicted_peak(self, request: Request, hit: Sequence[int]) -> float:
        """Blocks that the running requests and this one will hold at their peak; 0 while lengths are unknown."""
        future = [(self.lengths.remaining(other), len(other.known)) for other in (*self.running, request)]
        known = [(remaining, context) for remaining, context in future if remaining is not None]
        shared = sum(len(other.blocks) for other in self.running) - self.pool.held + len(hit) - self.pool.unheld(hit)
        return predicted_peak(known, self.config.block_size) - shared if len(known) == len(future) else 0.0

    def _prefill_budget(self, step: StepPlanner, model: StepTimeModel | None) -> PrefillBudget:
        bounds, tail = self.limits.bounds, self.correction.tail()
        return PrefillBudget(
            tokens=max(MINIMUM_CHUNK, bounds.max_batched_tokens - len(step.rows)),
            model=model,
            decode=StepWork(sequences=len(step.rows), kv_tokens=step.kv_tokens),
            itl_targets=[target / tail for target in step.itl_targets],
            itl_default=bounds.itl_target / tail,
        )

    def _owed(self, request: Request) -> int:
        return self.blocks_for(len(request.known)) - len(request.blocks)

    # --- parts of a settle -------------------------------------------------------------------------------------

    def _deliver(self, request: Request, token: int, now: float) -> Outcome:
        if token in request.stop_ids:
            outcome = self._outcome(request, (), "stop", None, now)
            self._learn_lengths(request, now)
            self._end(request, forget=False)
            return outcome
        request.known.append(token)
        self.counters.charge(request.tenant, OUTPUT_WEIGHT)
        full = request.generated >= request.max_tokens or len(request.known) >= self.config.max_model_length
        outcome = self._outcome(request, (token,), "length" if full else None, None, now)
        request.last_token_at = now
        if full:
            self._learn_lengths(request, now)
            self._end(request, forget=False)
        return outcome

    def _learn_lengths(self, request: Request, now: float) -> None:
        """What ended requests teach: how long one runs and how much it writes."""
        if request.first_scheduled_at is not None:
            self.residence = _smoothed(self.residence, now - request.first_scheduled_at)
            self.mean_output = _smoothed(self.mean_output, float(request.generated))
            self.lengths.add(request.tenant, request.generated)

    def _learn_overrun(self, plan: Plan, outcomes: Sequence[Outcome]) -> None:
        """A stream's least gap is this step alone; others waited longer for other reasons."""
        model = self.model
        if not plan.work.prefill_tokens or model is None or model.steps < TRUSTED_STEPS:
            return
        gaps = [outcome.gap for outcome in outcomes if outcome.gap is not None]
        if gaps:
            self.correction.observe(min(gaps), model.predict(plan.work))

    def _outcome(
        self, request: Request, token_ids: tuple[int, ...], finish: Finish | None, error: str | None, now: float
    ) -> Outcome:
        first = not request.delivered
        request.delivered = True
        started = request.first_scheduled_at if request.first_scheduled_at is not None else now
        return Outcome(
            request_id=request.request_id,
            token_ids=token_ids,
            finish=finish,
            error=error,
            first=first,
            cached_tokens=request.cached_tokens,
            queue_seconds=max(0.0, started - request.arrived_at),
            gap=None if request.last_token_at is None else now - request.last_token_at,
        )

    def _end(self, request: Request, forget: bool) -> None:
        self.running.remove(request)
        del self.requests[request.request_id]
        dropped = self._release(request, forget)
        if forget:
            self.tainted += dropped

    def _release(self, request: Request, forget: bool) -> list[int]:
        """The one way for a running request to give back what it holds. Returns blocks that nobody holds any more."""
        dropped = self.pool.release(request.blocks, forget)
        request.blocks = []
        request.computed = 0
        request.indexed = 0
        self._departures += 1
        self._slots.append(request.slot)
        request.slot = -1
        return dropped

    def _index(self, request: Request) -> None:
        """Offer blocks that became full and computed to the prefix index."""
        full = request.computed // self.config.block_size
        if full > request.indexed and self.config.prefix_cache:
            self._hash_known(request)
            for block in range(request.indexed, full):
                self.pool.index(request.blocks[block], request.hashes[block])
            request.indexed = full

    def _hash_known(self, request: Request) -> None:
        if not self.config.prefix_cache:
            return
        extend_hashes(request.hashes, request.known, self.config.block_size, request.tenant)


def _strength(request: Request) -> tuple[float, int]:
    """Who keeps its blocks when they run out: the highest priority, aged, then the earliest."""
    return aged_arrival(request), request.order


def _unfounded(plan: Plan, errors: Mapping[str, str]) -> frozenset[str]:
    """Requests that shared blocks which a failed request was to fill in this very step."""
    failed = set(errors)
    for request_id, other in plan.leans:  # in order of starting, so a chain of them is followed to its end
        if other in failed:
            failed.add(request_id)
    return frozenset(failed - errors.keys())


def _smoothed(mean: float | None, value: float) -> float:
    return value if mean is None else mean + 0.1 * (value - mean)
