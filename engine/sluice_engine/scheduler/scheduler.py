"""Iteration-level batching: each step hands tokens to requests until their `computed` catches up with `known`.

Order within a step: every decoding request its one token, so a stream never stalls behind a prompt; then chunks of
running prompts; then waiting requests first come, first served. Out of blocks, the latest running request is
preempted by recompute (one victim per step; its full blocks stay cached). It comes back only when its whole sequence
and a margin fit, and nobody overtakes it, so `running` is always in order of arrival and the oldest always advances.

No torch, no clock: time is an argument.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice_engine.admission import Limits, predicted_wait
from sluice_engine.blocks import BlockPool, chain_hash
from sluice_engine.request import Request
from sluice_engine.scheduler.budget import MINIMUM_CHUNK, PrefillBudget
from sluice_engine.scheduler.plan import Finish, Outcome, Plan
from sluice_engine.scheduler.planner import StepPlanner
from sluice_law.steptime import StepTimeModel, StepWork


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """What does not change while serving. The pool must hold one request of `max_model_length` tokens."""

    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_model_length: int = 8192
    prefix_cache: bool = True

    def __post_init__(self) -> None:
        """Raises ValueError where a maximal request could never run."""
        if self.num_blocks * self.block_size < self.max_model_length:
            raise ValueError(
                f"{self.num_blocks} blocks of {self.block_size} tokens cannot hold one request of "
                f"{self.max_model_length} tokens"
            )


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not taken, and the predicted wait in seconds."""

    reason: str
    retry_after: float
    message: str


class Scheduler:
    """Requests, their blocks and the rule that shares a step among them."""

    def __init__(self, config: SchedulerConfig, limits: Limits) -> None:
        self.config = config
        self.limits = limits
        self.pool = BlockPool(config.num_blocks, config.block_size)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.requests: dict[str, Request] = {}
        self.draining = False
        self.preemptions = 0
        self.tainted: list[int] = []  # blocks of failed requests, for the runner to scrub before the next step
        self.residence: float | None = None  # mean seconds that a request runs, smoothed
        self.mean_output: float | None = None  # mean generated tokens of ended requests, smoothed
        self._slots = list(range(config.max_num_seqs - 1, -1, -1))
        self._steps = 0

    # --- arrivals and departures -------------------------------------------------------------------------------

    def submit(self, request: Request) -> Refusal | None:
        """Queue a request, or say why not. Raises ValueError for one that could never run."""
        if request.request_id in self.requests:
            raise ValueError(f"request {request.request_id} is already here")
        if not request.known or request.max_tokens < 1:
            raise ValueError("a request needs a prompt of one token or more and max_tokens of 1 or more")
        if len(request.known) >= self.config.max_model_length:
            raise ValueError(
                f"the prompt has {len(request.known)} tokens; with one to generate, this model takes at most "
                f"{self.config.max_model_length - 1}"
            )
        if self.draining:
            return Refusal("draining", 1.0, "this replica is draining; another one takes new requests")
        places = min(self.limits.concurrency, self.config.max_num_seqs)
        if len(self.waiting) >= self.limits.bounds.max_queue + max(0, places - len(self.running)):
            return Refusal(
                "queue_full", self.predicted_wait(), f"the queue holds {len(self.waiting)} requests, its limit"
            )
        self._hash_known(request)
        self.requests[request.request_id] = request
        self.waiting.append(request)
        return None

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
    def tokens_in_flight(self) -> int:
        """Known tokens of everything here, running or waiting."""
        return sum(len(request.known) for request in self.requests.values())

    # --- one step ----------------------------------------------------------------------------------------------

    def plan(self, now: float, model: StepTimeModel | None = None) -> Plan | None:
        """The next step, or None when there is nothing to compute. Blocks are taken here, tokens counted at settle."""
        while True:
            step = StepPlanner(self)
            step.decodes()
            budget = self._prefill_budget(step, model)
            step.prefills(budget)
            if step.preempted is None:  # what a victim gave up is for those that lacked it
                step.admit(budget, now)
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
        for row in plan.rows:
            token = next(tokens) if row.samples else None
            request = self.requests.get(row.request_id)
            if request is None:
                continue
            if errors and row.request_id in errors:
                outcomes.append(self._outcome(request, (), "error", errors[row.request_id], now))
                self._end(request, forget=True)
                continue
            request.computed += len(row.tokens)
            self._index(request)
            if token is not None:
                outcomes.append(self._deliver(request, token, now))
        return outcomes

    def decode_run(self, ends_at: Sequence[float], token: int) -> list[Outcome]:
        """As many decode-only steps as `ends_at` has times, for `advance`, which has checked that they are steady."""
        last = len(ends_at) - 1
        self._steps += len(ends_at)
        for request in self.running:
            self.grow(request, request.computed + len(ends_at))
        outcomes: list[Outcome] = []
        for request in list(self.running):
            request.known.extend([token] * last)
            request.computed += len(ends_at)
            self._index(request)
            if last:
                request.last_token_at = ends_at[-2]
                request.delivered = True
            outcomes.append(self._deliver(request, token, ends_at[-1]))
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

    # --- what planning asks ------------------------------------------------------------------------------------

    def match(self, request: Request) -> list[int]:
        """Cached blocks that this waiting request can start from. Its last token is always left to compute, so the
        block that holds it is never shared."""
        if not self.config.prefix_cache:
            return []
        return self.pool.match(request.hashes[: (len(request.known) - 1) // self.config.block_size])

    def fits(self, request: Request, hit: Sequence[int]) -> bool:
        """Whether a waiting request may run: its whole sequence, what running prompts still need and a block for each
        running request fit. Without that margin a long prompt is admitted, preempted and admitted again."""
        if not self.running:
            return True
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
        """The head of the queue begins to run, from the cached blocks in `hit`."""
        self.waiting.remove(request)
        self.pool.acquire(hit)
        request.blocks = list(hit)
        request.computed = len(hit) * self.config.block_size
        request.indexed = len(hit)
        request.slot = self._slots.pop()
        self.running.append(request)
        if request.first_scheduled_at is None:
            request.first_scheduled_at = now
            request.cached_tokens = request.computed

    def preempt(self, victim: Request) -> None:
        """Back to the head of the queue; its full blocks stay cached, the rest is computed again."""
        self.running.remove(victim)
        self._release(victim, forget=False)
        victim.preemptions += 1
        self.preemptions += 1
        self._hash_known(victim)
        self.waiting.appendleft(victim)

    def _prefill_budget(self, step: StepPlanner, model: StepTimeModel | None) -> PrefillBudget:
        bounds = self.limits.bounds
        return PrefillBudget(
            tokens=max(MINIMUM_CHUNK, bounds.max_batched_tokens - len(step.rows)),
            model=model,
            decode=StepWork(sequences=len(step.rows), kv_tokens=step.kv_tokens),
            itl_target=bounds.itl_target,
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
        self._slots.append(request.slot)
        request.slot = -1
        return dropped

    def _index(self, request: Request) -> None:
        """Offer blocks that became full and computed to the prefix index."""
        if not self.config.prefix_cache:
            return
        full = request.computed // self.config.block_size
        if full > request.indexed:
            self._hash_known(request)
            for block in range(request.indexed, full):
                self.pool.index(request.blocks[block], request.hashes[block])
            request.indexed = full

    def _hash_known(self, request: Request) -> None:
        if not self.config.prefix_cache:
            return
        size = self.config.block_size
        for block in range(len(request.hashes), len(request.known) // size):
            parent = request.hashes[-1] if request.hashes else None
            request.hashes.append(chain_hash(parent, request.known[block * size : (block + 1) * size]))


def _smoothed(mean: float | None, value: float) -> float:
    return value if mean is None else mean + 0.1 * (value - mean)
