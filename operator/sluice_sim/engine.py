"""One engine in virtual time: the real scheduler, admission and block code; only the model is a step-time profile.

Runs of identical decode steps are taken at once (`advance`), in closed form up to the next arrival, end, tick or
scrape; everything else is planned and settled step by step.
"""

from dataclasses import dataclass, replace
from itertools import repeat

from sluice_engine.admission import TICK_SECONDS, Bounds, Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Outcome, Plan, Scheduler, SchedulerConfig, advance, steady_steps, steady_work
from sluice_engine.window import LoadWindow
from sluice_law.steptime import StepTimeModel, StepWork
from sluice_sim.books import Books


@dataclass(slots=True)
class Record:
    """One request's life. Seconds of virtual time; nothing of it is visible to decide()."""

    arrived_at: float
    prompt: int
    output: int
    first_at: float | None = None
    ended_at: float | None = None
    refused: bool = False
    good: bool = False

    @property
    def ttft(self) -> float | None:
        """Arrival to first token."""
        return None if self.first_at is None else self.first_at - self.arrived_at

    @property
    def itl(self) -> float | None:
        """Mean inter-token time; None with fewer than two tokens or before the end."""
        if self.first_at is None or self.ended_at is None or self.output < 2:
            return None
        return (self.ended_at - self.first_at) / (self.output - 1)


class SimEngine:
    """Started at `now`, ready at once; the caller accounts for its cold start."""

    def __init__(self, profile: StepTimeModel, config: SchedulerConfig, bounds: Bounds, now: float) -> None:
        self.profile = profile
        self.limits = Limits(bounds)
        self.scheduler = Scheduler(config, self.limits)
        self.window = LoadWindow()
        self.books = Books()
        self.clock = now
        self._records: dict[str, Record] = {}
        self._pending: tuple[Plan, float] | None = None
        self._next_tick = now

    @property
    def busy(self) -> bool:
        """Whether requests are here."""
        return bool(self.scheduler.requests)

    @property
    def model(self) -> StepTimeModel:
        """The profile, with as many steps behind it as were taken."""
        return replace(self.profile, steps=self.books.steps)

    def submit(self, name: str, number: int, record: Record) -> None:
        """A request arrives at the present clock (call `run_until` its arrival first). Its prompt shares no prefix
        with another's. One longer than the context is refused, as the HTTP side would."""
        self.books.arrived += 1
        longest = self.scheduler.config.max_model_length
        if record.prompt + record.output > longest:
            self._refuse(record)
            return
        request = Request(name, [number] * record.prompt, record.output, record.arrived_at)
        if self.scheduler.submit(request) is not None:
            self._refuse(record)
            return
        self._records[name] = record

    def run_until(self, until: float) -> None:
        """Take every step that ends by `until`; one that is under way then goes on in the next call."""
        while True:
            if self._pending is not None:
                plan, ends_at = self._pending
                if ends_at > until:
                    break
                self._settle(plan, ends_at)
            self._tick()
            if self._steady(until):
                continue
            plan_or_none = self.scheduler.plan(self.clock, self.model)
            if plan_or_none is None:
                self._idle(until)
                break
            self._pending = (plan_or_none, self.clock + self.profile.predict(plan_or_none.work))

    def scrape(self) -> str:
        """What /metrics says now."""
        return self.books.render(self.scheduler, self.limits, self.profile)

    def _refuse(self, record: Record) -> None:
        record.refused = True
        self.books.rejected += 1

    def _idle(self, until: float) -> None:
        """Nothing to compute: time passes, and the fast loop sees an empty window once it has emptied."""
        while self._next_tick <= until and self.limits.concurrency < self.limits.bounds.concurrency_max:
            self.clock = max(self.clock, self._next_tick)
            self._tick()
        self.clock = max(self.clock, until)

    def _tick(self) -> None:
        self.limits.expire(self.clock)
        if self.clock < self._next_tick:
            return
        self._next_tick = self.clock + TICK_SECONDS
        self.limits.tick(self.clock, self.model, self.window.load(self.scheduler, self.clock))

    def _steady(self, until: float) -> bool:
        """Take as many decode-only steps at once as end before anything can change; says whether any was taken."""
        most = steady_steps(self.scheduler)
        horizon = min(until, self._next_tick)
        if most < 2 or self.clock >= horizon:
            return False
        work = steady_work(self.scheduler)
        seconds, growth = self.profile.predict(work), self.profile.kv_token * work.sequences
        ends: list[float] = []
        at = self.clock
        while len(ends) < most and at + seconds <= horizon:
            at += seconds
            ends.append(at)
            seconds += growth
        if not ends:
            return False
        held = self.scheduler.pool.held
        outcomes = advance(self.scheduler, ends)
        span, count = at - self.clock, len(ends)
        sequences = work.sequences
        self._book(span, count, held, sequences * count)
        first = self.profile.predict(work)
        for index in range(count):
            self.books.itl.observe(first + index * growth, sequences)
        mean = span / count
        self.window.record(StepWork(sequences=sequences), repeat(mean, sequences * count), at)
        self.clock = at
        self._deliver(outcomes)
        return True

    def _settle(self, plan: Plan, ends_at: float) -> None:
        held = self.scheduler.pool.held
        span = ends_at - self.clock
        outcomes = self.scheduler.settle(plan, [0] * sum(row.samples for row in plan.rows), ends_at)
        self._pending, self.clock = None, ends_at
        self.books.prompt_tokens += plan.prompt_tokens
        self.books.cached_tokens += plan.cached_prompt_tokens
        self._book(span, 1, held, sum(len(outcome.token_ids) for outcome in outcomes))
        gaps = [outcome.gap for outcome in outcomes]
        for gap in gaps:
            if gap is not None:
                self.books.itl.observe(gap)
        self.window.record(plan.work, gaps, ends_at)
        self._deliver(outcomes)

    def _book(self, span: float, steps: int, held: int, generated: int) -> None:
        self.books.steps += steps
        self.books.busy_seconds += span
        self.books.block_seconds += span * max(held, self.scheduler.pool.held)
        self.books.generated += generated

    def _deliver(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            record = self._records[outcome.request_id]
            if record.first_at is None:
                record.first_at = self.clock
                self.books.ttft.observe(self.clock - record.arrived_at)
            if outcome.finish is not None:
                record.ended_at = self.clock
                self._judge(record)
                del self._records[outcome.request_id]

    def _judge(self, record: Record) -> None:
        targets = self.limits.bounds
        record.good = (record.ttft or 0.0) <= targets.ttft_target and (record.itl or 0.0) <= targets.itl_target
        self.books.finished += 1
        if record.good:
            self.books.met += 1
        else:
            self.books.missed += 1
