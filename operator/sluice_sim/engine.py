"""One engine in virtual time: the real scheduler, admission and block code; only the model is a step-time profile.

Runs of identical decode steps are taken at once (`advance`), in closed form up to the next arrival, end, tick or
scrape; everything else is planned and settled step by step.
"""

from bisect import bisect_right
from dataclasses import dataclass, field, replace

from sluice_engine.admission import TICK_SECONDS, Bounds, Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Outcome, Plan, Scheduler, SchedulerConfig, advance, steady_steps, steady_work
from sluice_engine.window import LoadWindow
from sluice_law.steptime import StepTimeModel, StepWork
from sluice_operator.decide.values import EngineSample
from sluice_operator.exposition import parse
from sluice_sim.books import Books, Gauges
from sluice_sim.record import Record
from sluice_sim.traces import Arrival, prompt_tokens


@dataclass(frozen=True, slots=True)
class Visit:
    """A request at an engine: its number in the trace, what arrived, the life that is written down, and the replicas
    that it was offered to."""

    number: int
    arrival: Arrival
    record: Record
    tried: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Run:
    """Decode-only steps that begin one after another unless something comes between: when each ends."""

    ends: list[float]
    first: float  # seconds of the first
    growth: float  # each is longer by this
    sequences: int


class SimEngine:
    """Started at `now`, ready at once; the caller accounts for its cold start. Steps take what `profile` says;
    `published` is what the engine believes of itself and publishes."""

    def __init__(
        self,
        profile: StepTimeModel,
        config: SchedulerConfig,
        bounds: Bounds,
        now: float,
        published: StepTimeModel | None = None,
    ) -> None:
        self.limits = Limits(bounds)
        self.scheduler = Scheduler(config, self.limits)
        self.window = LoadWindow()
        self.books = Books()
        self.clock = now
        self.tokens = 0
        self._profile, self._published = profile, published or profile
        self._visits: dict[str, Visit] = {}
        self._pending: tuple[Plan, float] | None = None
        self._run: _Run | None = None
        self._next_tick = now

    @property
    def requests(self) -> int:
        """In flight here, running or waiting."""
        return len(self._visits)

    @property
    def model(self) -> StepTimeModel:
        """What it publishes, with as many steps behind it as were taken."""
        return replace(self._published, steps=self.books.steps)

    def submit(self, visit: Visit) -> Visit | None:
        """A request arrives at the present clock (call `run_until` its arrival first). Says who is refused: the request
        itself, one that waited and makes way for it, or nobody."""
        self.books.arrived += 1
        name, one = f"r{visit.number}", visit.arrival
        request = Request(
            name,
            prompt_tokens(one, visit.number),
            one.output,
            visit.record.arrived_at,
            priority=one.priority,
            tenant=one.tenant,
        )
        refusal = self.scheduler.submit(request)
        if refusal is not None:
            self.books.rejected += 1
            if refusal.request_id == name:
                return visit
        self._visits[name] = visit
        self.tokens += one.prompt
        if refusal is None:
            return None
        displaced = self._visits.pop(refusal.request_id)
        self.tokens -= displaced.arrival.prompt
        return displaced

    def run_until(self, until: float, lazily: bool = False) -> None:
        """Take every step that ends by `until`; one that is under way then goes on in the next call. `lazily` leaves a run
        of decode steps untaken that nobody's end is in: requests and tokens in flight are right all the same."""
        while True:
            cut = False
            if self._pending is not None:
                plan, ends_at = self._pending
                if ends_at > until:
                    return
                self._settle(plan, ends_at)
            elif self._run is not None:
                cut = self._run.ends[-1] > until
                if cut and lazily:
                    return
                self._take(self._run, until)
            self._tick()
            if not cut and self._begin_run():
                continue
            plan_or_none = self.scheduler.plan(self.clock, self.model)
            if plan_or_none is None:
                self._idle(until)
                return
            self._pending = (plan_or_none, self.clock + self._profile.predict(plan_or_none.work))

    def scrape(self) -> EngineSample:
        """What /metrics says now, read by the operator's parser."""
        return parse(self.books.render(self.gauges()))

    def gauges(self) -> Gauges:
        """This instant."""
        scheduler = self.scheduler
        return Gauges(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            tokens_in_flight=scheduler.tokens_in_flight,
            held=scheduler.pool.held,
            cached=scheduler.pool.cached,
            blocks=scheduler.pool.num_blocks,
            block_size=scheduler.pool.block_size,
            preemptions=scheduler.preemptions,
            limits=self.limits,
            model=self._published,
        )

    def lost(self) -> list[Visit]:
        """Everybody who is here when the replica dies."""
        return list(self._visits.values())

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

    def _begin_run(self) -> bool:
        """Look ahead over the decode-only steps that end before anything here can change; says whether there is any."""
        most = steady_steps(self.scheduler)
        if most < 2 or self.clock >= self._next_tick:
            return False
        if not all(request.delivered for request in self.scheduler.running):
            return False  # a prompt's last token: its first answer is written down in a step of its own
        work = steady_work(self.scheduler)
        first, growth = self._profile.predict(work), self._profile.kv_token * work.sequences
        ends: list[float] = []
        at, seconds = self.clock, first
        while len(ends) < most and at + seconds <= self._next_tick:
            at += seconds
            ends.append(at)
            seconds += growth
        if not ends:
            return False
        self._run = _Run(ends, first, growth, work.sequences)
        return True

    def _take(self, run: _Run, until: float) -> None:
        """Those steps of the run that end by `until`."""
        self._run = None
        ends = run.ends[: bisect_right(run.ends, until)]
        if not ends:
            return
        held, span, count = self.scheduler.pool.held, ends[-1] - self.clock, len(ends)
        outcomes = advance(self.scheduler, ends)
        tokens = run.sequences * count
        self.books.book(span, count, max(held, self.scheduler.pool.held), tokens)
        self.books.itl.observe_ramp(run.first, run.growth, count, run.sequences)
        self.window.record(StepWork(sequences=run.sequences), (span / count,), ends[-1], times=tokens)
        self.clock = ends[-1]
        self._deliver(outcomes)

    def _settle(self, plan: Plan, ends_at: float) -> None:
        held, span = self.scheduler.pool.held, ends_at - self.clock
        outcomes = self.scheduler.settle(plan, [0] * sum(row.samples for row in plan.rows), ends_at)
        self._pending, self.clock = None, ends_at
        self.books.prompt_tokens += plan.prompt_tokens
        self.books.cached_tokens += plan.cached_prompt_tokens
        tokens = sum(len(outcome.token_ids) for outcome in outcomes)
        self.books.book(span, 1, max(held, self.scheduler.pool.held), tokens)
        gaps = [outcome.gap for outcome in outcomes]
        for gap in gaps:
            if gap is not None:
                self.books.itl.observe(gap)
        self.window.record(plan.work, gaps, ends_at)
        self._deliver(outcomes)

    def _deliver(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if not outcome.first and outcome.finish is None:
                continue
            visit = self._visits[outcome.request_id]
            record = visit.record
            if outcome.first:
                record.first_at, record.cached = self.clock, outcome.cached_tokens
                self.tokens -= record.prompt
                self.books.ttft.observe(self.clock - record.arrived_at)
            if outcome.finish is not None:
                record.ended_at = self.clock
                self.books.end(record.judge(self.limits.bounds.ttft_target, self.limits.bounds.itl_target))
                del self._visits[outcome.request_id]
