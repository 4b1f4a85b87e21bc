"""One engine in virtual time: the real scheduler, admission and block code with a step-time profile for the model.

`advance` takes a run of identical decode steps in closed form, up to the next arrival, end, tick or scrape. All other
steps are planned and settled one by one. The engine has no access to true output lengths: it gets the client's
max_tokens, and the last output token is the end-of-sequence token (servers count it, so traces do too). `overlap`
plans each step shortly before the previous step ends, as an engine with overlapped steps does. It rules out the closed
form, and its only effect is that a request that arrives in those last milliseconds starts one step later.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sluice_engine.control.limit_controller import TICK_SECONDS, LimitController
from sluice_engine.control.load_window import LoadWindow
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Outcome, Plan, Scheduler, SchedulerConfig, advance, steady_steps, steady_work
from sluice_engine.scheduler.lookahead import planning_time
from sluice_operator.autoscaler.values import EngineSample
from sluice_operator.engines.exposition import parse
from sluice_perfmodel.step_time import StepTimeModel, StepWork
from sluice_sim.engine.exposition import EngineCounters, EngineState, shadow_totals
from sluice_sim.engine.offered_request import OfferedRequest
from sluice_sim.engine.step_times import StepTimes
from sluice_sim.traces import prompt_identities, prompt_tokens

WORD, END = 0, 1  # token ids: any output token, and end of sequence
_STOPS: Final = frozenset((END,))


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of back-to-back decode-only steps and their end times. An arrival, a tick or a scrape cuts it short."""

    ends: list[float]
    first: float  # duration of the first step, s
    growth: float  # increment of the duration per step, s
    sequences: int
    before_end: int | None  # number of steps up to and including the first that finishes a request


@dataclass(slots=True)
class _Step:
    """A step in progress. `ahead`: the next step is still to be planned while this one runs."""

    plan: Plan
    begun: float
    ends_at: float
    ahead: bool
    next: Plan | None = None


class SimEngine:
    """An engine that starts at `now` and is ready at once; the caller accounts for the cold start.

    `times` gives the step durations and the step-time model that the engine publishes. `on_plan` is called in order
    with each plan that is not part of a run taken in closed form."""

    def __init__(
        self,
        times: StepTimes,
        config: SchedulerConfig,
        bounds: Limits,
        now: float,
        *,
        overlap: bool = False,
        on_plan: Callable[[Plan], None] = lambda _: None,
    ) -> None:
        self.limits = LimitController(bounds)
        self.scheduler = Scheduler(config, self.limits)
        self.window = LoadWindow()
        self.counters = EngineCounters()
        self.clock = now
        self.pending_prefill_tokens = 0
        self._times, self._overlap, self._on_plan = times, overlap, on_plan
        self._in_flight: dict[str, OfferedRequest] = {}
        self._ends: dict[str, int] = {}  # by request: prompt and output tokens before the end-of-sequence token
        self._pending: _Step | None = None
        self._run: _Run | None = None
        self._next_tick = now
        self._wakes_at: float | None = None  # next wake-up of an idle engine's loop, once a second

    @property
    def requests(self) -> int:
        """Requests in flight: running or waiting."""
        return len(self._in_flight)

    @property
    def model(self) -> StepTimeModel:
        """The engine's own step-time model, which it publishes."""
        return self._times.belief

    def submit(self, request: OfferedRequest) -> OfferedRequest | None:
        """Submit a request at the present clock (call `run_until` with its arrival time first).

        Returns the request that is not kept: this one if it is rejected, a waiting one if it is evicted, else None."""
        self.counters.arrived += not request.offered_before
        self.counters.offered_again += request.offered_before
        name, one = f"r{request.number}", request.arrival
        engine_request = Request(
            name,
            prompt_tokens(one, request.number),
            one.most(self.scheduler.config.max_model_length),
            request.record.arrived_at,
            _STOPS,
            priority=one.priority,
            tenant=one.tenant,
            hashes=prompt_identities(one, request.number, self.scheduler.config.block_size),
            offered_before=request.offered_before,
        )
        refusal = self.scheduler.submit(engine_request)
        if refusal is not None:
            self.counters.rejected += 1
            if refusal.request_id == name:
                return request
        self._in_flight[name] = request
        if one.output < engine_request.max_tokens:
            self._ends[name] = one.prompt + one.output - 1
        self.pending_prefill_tokens += request.prefill_tokens
        if refusal is None:
            return None
        displaced = self._in_flight.pop(refusal.request_id)
        self._ends.pop(refusal.request_id, None)
        self.pending_prefill_tokens -= displaced.prefill_tokens
        return displaced

    def run_until(self, until: float, *, lazily: bool = False) -> None:
        """Take every step that ends by `until`; a step in progress at `until` continues in the next call.

        `lazily` skips a run of decode steps that extends beyond `until`, since it finishes no request and leaves
        `requests` and `tokens` unchanged."""
        while True:
            cut = False
            if self._pending is not None:
                self._plan_ahead(self._pending, until)
                if self._pending.ends_at > until:
                    return
                self._settle(self._pending)
                if self._pending is not None:
                    continue
            elif self._run is not None:
                cut = self._run.ends[-1] > until
                if cut and lazily:
                    return
                self._take(self._run, until)
            if self.clock >= until:
                return  # the next plan must include requests that arrive at exactly this instant
            if self.scheduler.requests:
                self._tick(self.clock)
            if not cut and self._begin_run():
                continue
            plan = self.scheduler.plan(self.clock, self.model)
            if plan is None:
                self._idle(until)
                return
            step = self._begin(plan)
            if step.ahead:  # an engine without a step in progress begins this one and plans the next at once
                step.ahead, step.next = False, self.scheduler.plan_ahead(self.clock, self.model)

    def _begin(self, plan: Plan) -> _Step:
        self._wakes_at = None
        self._on_plan(plan)
        self._pending = _Step(plan, self.clock, self._times.end(plan.work, self.clock), self._overlap)
        return self._pending

    def _plan_ahead(self, step: _Step, until: float) -> None:
        """Plan the next step while `step` runs, at most once per step."""
        if not step.ahead:
            return
        at = min(planning_time(step.plan, step.begun, self.model), step.ends_at)
        if at >= until:
            return
        step.ahead = False
        self._tick(at)
        step.next = self.scheduler.plan_ahead(at, self.model)

    def scrape(self) -> EngineSample:
        """The current /metrics, read by the operator's parser."""
        return parse(self.counters.render(self.state()))

    def state(self) -> EngineState:
        """The engine's state at this instant."""
        scheduler = self.scheduler
        return EngineState(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            tokens_in_flight=scheduler.tokens_in_flight,
            held=scheduler.pool.held,
            cached=scheduler.pool.cached,
            blocks=scheduler.pool.num_blocks,
            block_size=scheduler.pool.block_size,
            preemptions=scheduler.preemptions,
            limits=self.limits,
            model=self.limits.published(self._times.belief),
            shadow=shadow_totals(scheduler.state.shadow.queues),
        )

    def lost(self) -> list[OfferedRequest]:
        """The requests in flight, which a failure of the replica loses."""
        return list(self._in_flight.values())

    def _idle(self, until: float) -> None:
        """Advance the clock without work. The loop wakes once a second so that the fast loop sees an empty window."""
        if self._wakes_at is None:
            self._wakes_at = self.clock + TICK_SECONDS
        while self._wakes_at <= until and self.limits.concurrency < self.limits.current.concurrency_max:
            self._tick(self._wakes_at)
            self._wakes_at += TICK_SECONDS
        self.clock = max(self.clock, until)

    def _tick(self, now: float) -> None:
        self.limits.expire(now)
        if now < self._next_tick:
            return
        self._next_tick = now + TICK_SECONDS
        self.limits.tick(now, self.model, self.window.load(self.scheduler.occupancy, now))

    def _begin_run(self) -> bool:
        """Find the decode-only steps that end before the engine's state can change. Returns False if there are none."""
        profile = self._times.profile
        if profile is None or self._overlap:
            return False
        if self.clock >= self._next_tick or not all(one.delivered for one in reversed(self.scheduler.running)):
            return False  # a request without a delivered token: a step of its own records its first token
        before_end = self._before_an_end()
        most = 0 if before_end == 1 else steady_steps(self.scheduler.state, before_end)
        if most < 2:
            return False
        work = steady_work(self.scheduler.state)
        first, growth = profile.predict(work), profile.kv_token * work.sequences
        ends: list[float] = []
        at, seconds = self.clock, first
        while len(ends) < most and at + seconds <= self._next_tick:
            at += seconds
            ends.append(at)
            seconds += growth
        if not ends:
            return False
        self._run = _Run(ends, first, growth, work.sequences, before_end)
        return True

    def _before_an_end(self) -> int | None:
        """Steps up to the first that samples an end-of-sequence token; None if every request runs to max_tokens."""
        ends, running = self._ends, self.scheduler.running
        left = [ends[one.request_id] + 1 - len(one.known) for one in running if one.request_id in ends]
        return min(left, default=None)

    def _take(self, run: _Run, until: float) -> None:
        """Take the steps of the run that end by `until`."""
        self._run = None
        times = run.ends[: bisect_right(run.ends, until)]
        if not times:
            return
        held, span, count = self.scheduler.pool.held, times[-1] - self.clock, len(times)
        last: dict[str, int] = {}
        if count == run.before_end:
            ends, running = self._ends, self.scheduler.running
            last = {r.request_id: END for r in running if ends.get(r.request_id) == len(r.known) + count - 1}
        outcomes = advance(self.scheduler.state, times, WORD, last)
        tokens = run.sequences * count
        self.counters.add_steps(span, count, max(held, self.scheduler.pool.held), tokens - len(last))
        self._times.took(StepWork(sequences=run.sequences), count)
        self.counters.itl.observe_ramp(run.first, run.growth, count, run.sequences)
        self.window.record(StepWork(sequences=run.sequences), (span / count,), times[-1], times=tokens)
        self.clock = times[-1]
        self._deliver(outcomes)

    def _settle(self, step: _Step) -> None:
        """Settle a step that has ended. A step planned in the meantime begins at once, as in the engine."""
        plan, held = step.plan, self.scheduler.pool.held
        span, self.clock, self._pending = step.ends_at - self.clock, step.ends_at, None
        if step.next is not None:
            self._begin(step.next)
        ends = self._ends
        sampled = [END if ends.get(r.request_id) == r.start + len(r.tokens) else WORD for r in plan.rows if r.samples]
        outcomes = self.scheduler.settle(plan, sampled, step.ends_at)
        self._times.took(plan.work, plain=not plan.copies)
        self.counters.prompt_tokens += plan.prompt_tokens
        self.counters.cached_tokens += plan.cached_prompt_tokens
        tokens = sum(len(outcome.token_ids) for outcome in outcomes)
        self.counters.add_steps(span, 1, max(held, self.scheduler.pool.held), tokens)
        gaps = [outcome.gap for outcome in outcomes]
        for gap, times in Counter(gaps).items():
            if gap is not None:
                self.counters.itl.observe(gap, times)
        self.window.record(plan.work, gaps, step.ends_at)
        self._deliver(outcomes)

    def _deliver(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if not outcome.first and outcome.finish is None:
                continue
            request = self._in_flight[outcome.request_id]
            record = request.record
            if outcome.first:
                record.first_at, record.cached = self.clock, outcome.cached_tokens
                self.pending_prefill_tokens -= request.prefill_tokens
                self.counters.ttft.observe(self.clock - record.arrived_at)
            if outcome.finish is not None:
                record.ended_at = self.clock
                self.counters.count_finished(
                    record.apply_slo(self.limits.current.ttft_target, self.limits.current.itl_target)
                )
                del self._in_flight[outcome.request_id]
                self._ends.pop(outcome.request_id, None)
