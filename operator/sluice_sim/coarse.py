"""One engine for long days: the same rules as the real scheduler's, on counts in place of tokens and blocks.

Decode-only steps are taken in closed form from one event to the next; steps with prompts in them are taken one by
one. What is left out: which blocks are whose (a half-filled block per request is booked), the order within a step,
and a preempted request's own cached blocks (it computes everything again). Agreement with exact mode is measured
in tests/sim.
"""

from dataclasses import replace

from sluice_engine.admission import TICK_SECONDS, Bounds, Limits, predicted_wait
from sluice_engine.scheduler import SchedulerConfig
from sluice_engine.scheduler.budget import MINIMUM_CHUNK, PrefillBudget
from sluice_engine.scheduler.correction import TailCorrection
from sluice_engine.scheduler.lateness import Pace, full_step
from sluice_engine.scheduler.tenants import TenantCounters, unavoidable_gap
from sluice_law.limit import TRUSTED_STEPS, EngineLoad
from sluice_law.steptime import StepTimeModel, StepWork
from sluice_law.work import Work, prefill_seconds
from sluice_operator.decide.values import EngineSample
from sluice_sim.books import Books, Gauges
from sluice_sim.coarse_cache import CoarseCache
from sluice_sim.coarse_decoding import Decoding
from sluice_sim.coarse_means import Means
from sluice_sim.coarse_prompts import CoarsePrompts
from sluice_sim.coarse_queue import CoarseQueue, Job, Room
from sluice_sim.fluid_window import FluidWindow
from sluice_sim.ramp import steps_within
from sluice_sim.visit import Visit


class CoarseEngine:
    """The interface of SimEngine. A step that began before an arrival is ended first, so the clock may run a step ahead."""

    def __init__(
        self,
        profile: StepTimeModel,
        config: SchedulerConfig,
        bounds: Bounds,
        now: float,
        published: StepTimeModel | None = None,
    ) -> None:
        self.limits = Limits(bounds)
        self.books = Books()
        self.counters = TenantCounters()
        self.clock = now
        self.tokens = 0
        told = published or profile
        self._profile, self._config = profile, config
        self._published = replace(told, steps=TRUSTED_STEPS)  # asked from then on
        self._blocks, self._size, self._most = config.num_blocks, config.block_size, config.max_num_seqs
        self._pool = self._blocks * self._size
        self._window = FluidWindow()
        longest, by_priority = config.max_model_length, config.policy == "priority"
        self._waiting = CoarseQueue(self.counters, longest, unavoidable_gap(longest, self._pool), by_priority)
        self._running: dict[Job, None] = {}  # in order of admission
        self._prompts = CoarsePrompts(profile)  # of those, the ones whose prompt is not computed yet
        self._decoding = Decoding()
        self._held = 0  # computed tokens of running requests
        self._cache = CoarseCache(self._pool, config.block_size)
        self._ended = Means()
        self._preemptions = 0
        self._next_tick = now
        self._moves = bounds.concurrency_min < bounds.concurrency_max  # the fast loop has had something to choose
        self._correction = TailCorrection()
        self._wrong = told != profile  # else there is nothing to correct, and rounding must not look like it

    @property
    def requests(self) -> int:
        """In flight here, running or waiting."""
        return len(self._running) + len(self._waiting)

    def submit(self, visit: Visit) -> Visit | None:
        """A request arrives. Says who is refused: the request itself, one that waited and makes way for it, or nobody."""
        bounds, again = self.limits.bounds, visit.offered_before
        self.books.arrived += not again
        self.books.again += again
        free = min(self.limits.concurrency, self._most) - len(self._running)
        full = len(self._waiting) >= bounds.max_queue + max(0, free)
        one = visit.arrival
        job = Job(visit, str(visit.number), one.prompt, one.output)
        pace = None
        if self._config.late_last:  # else nobody asks
            pace = self._pace() if self.books.steps >= TRUSTED_STEPS else None
            cached = self._cache.hit(one.blocks, job.known)
            job.work = prefill_seconds(self._published, Work(0, job.known - cached, cached))
        now = max(self.clock, visit.record.arrived_at)
        room = Room(now, full, self._ended.output or 0.0, bounds.ttft_target, pace)
        refused = self._waiting.come(job, room, self._patience)
        self.tokens += visit.load
        if refused is None:
            return None
        self.books.rejected += 1
        self.tokens -= refused.visit.load
        return refused.visit

    def _patience(self) -> float:
        bounds, limit = self.limits.bounds, self.limits.concurrency
        residence = self._ended.residence or bounds.ttft_target
        return max(predicted_wait(bounds.max_queue, limit, limit, residence), bounds.ttft_target)

    def _pace(self) -> Pace:
        """As the door's `pace_of`."""
        model, bounds, limit = self._published, self.limits.bounds, self.limits.concurrency
        begun = sum(
            [prefill_seconds(model, Work(0, job.known - job.computed, job.computed)) for job in self._prompts.jobs]
        )
        work = StepWork(0, 0.0, self._decoding.count, self._decoding.context)
        prompts, beside = full_step(model, work, bounds.itl_target, bounds.max_batched_tokens)
        full, running, residence = prompts + beside, len(self._running), self._ended.residence
        between = 0.0 if residence is None else residence / max(1, limit)
        return Pace(begun, prompts / full, max(0, limit - running), between, full if running else 0.0)

    def run_until(self, until: float, lazily: bool = False) -> None:
        """Take every step that begins before `until`."""
        del lazily  # nothing here costs more when it is taken early
        prompts, limits = self._prompts.jobs, self.limits
        while self.clock < until:
            if self.clock >= self._next_tick or (limits.expires_at is not None and self.clock >= limits.expires_at):
                self._tick()
            if prompts:
                self._mixed_step(None)
            elif (cached := self._cached_of_next()) is not None:
                self._mixed_step(cached)
            elif self._decoding.count:
                self._decode_run(until)
            else:
                self._idle(until)

    def scrape(self) -> EngineSample:
        """What the operator's parser would make of /metrics now."""
        return self.books.sample(self.gauges())

    def gauges(self) -> Gauges:
        """This instant."""
        held = self._held_blocks()
        return Gauges(
            running=len(self._running),
            waiting=len(self._waiting),
            tokens_in_flight=self._held + sum(job.known for job in self._waiting),
            held=held,
            cached=min(self._cache.blocks, self._config.num_blocks - held),
            blocks=self._config.num_blocks,
            block_size=self._config.block_size,
            preemptions=self._preemptions,
            limits=self.limits,
            model=self.limits.published(self._published),
        )

    def lost(self) -> list[Visit]:
        """Everybody who is here when the replica dies."""
        return [job.visit for job in (*self._running, *self._waiting)]

    # --- time --------------------------------------------------------------------------------------------------

    def _idle(self, until: float) -> None:
        while self._next_tick <= until and self.limits.concurrency < self.limits.bounds.concurrency_max:
            self.clock = max(self.clock, self._next_tick)
            self._tick()
        self.clock = max(self.clock, until)

    def _tick(self) -> None:
        self.limits.expire(self.clock)
        if self.clock < self._next_tick:
            return
        self._next_tick = self.clock + TICK_SECONDS
        least, most = self.limits.bounds.concurrency_min, self.limits.bounds.concurrency_max
        if least < most:  # else nothing can move
            self._moves = True
            model = self._published if self.books.steps >= TRUSTED_STEPS else None
            self.limits.tick(self.clock, model, self._load())

    def _load(self) -> EngineLoad:
        running, seen = len(self._running), self._window.figures(self.clock)
        return EngineLoad(
            running=running,
            waiting=len(self._waiting),
            mean_context=self._held / running if running else 0.0,
            prefill_rate=seen.prefill_rate,
            prefill_context_rate=seen.prefill_context_rate,
            observed_itl=seen.p95,
            kv_tokens_total=self._pool,
            kv_tokens_held=self._held_blocks() * self._size,
            growth_per_sequence=self._growth(),
            mean_itl=seen.mean,
            mean_sequences=seen.sequences,
            written_per_sequence=self._decoding.written,
            prompt_per_output=self._ended.prompt_per_output,
        )

    def _growth(self) -> float:
        """Tokens that a running request is expected still to write: what is known of the mean, less what it wrote."""
        if not self._decoding.count:
            return self._ended.output or 0.0
        written = self._decoding.written
        mean = written * 2.0 if self._ended.output is None else self._ended.output
        return max(1.0, mean - written)

    def _held_blocks(self) -> int:
        size = self._size
        return min(self._blocks, (self._held + len(self._running) * (size // 2)) // size)

    # --- admission ---------------------------------------------------------------------------------------------

    def _cached_of_next(self) -> int | None:
        """Cached tokens of the first that waits, if it may begin: a place is free, and memory. None where nobody may."""
        waiting = self._waiting
        if not (waiting.line or waiting.late):
            return None
        running = len(self._running)
        if running >= self.limits.concurrency or running >= self._most:
            return None
        job = waiting.first
        if job.late and running and self.clock < waiting.late_from:
            return None
        cached = self._cache.hit(job.visit.arrival.blocks, job.known)
        return cached if not running or self._fits(job, cached) else None

    def _begin(self, budget: PrefillBudget) -> int:
        """The first that waits begins, if it may and the step has a chunk for it, whose tokens are returned; 0 where nobody
        does. Only asked for when a step has room for its prompt: until then those before it may still compute what it
        shares with them."""
        cached = self._cached_of_next()
        return 0 if cached is None else self._start(budget, cached)

    def _start(self, budget: PrefillBudget, cached: int) -> int:
        """The first that waits begins, with so many tokens cached, if the step has a chunk for it: its tokens."""
        job = self._waiting.first
        chunk = budget.chunk(job.known - cached, cached)
        if chunk <= 0:
            return 0
        if cached:
            self._cache.use(job.visit.arrival.blocks, cached)
        self._waiting.start(cached)
        job.started = self.clock if job.started is None else job.started
        job.computed, job.decoding = cached, False
        self._held += cached
        self._running[job] = None
        self._prompts.add(job)
        if job.visit.record.first_at is None:
            self.books.prompt_tokens += job.known
            self.books.cached_tokens += cached
            job.visit.record.cached = cached
        return chunk

    def _fits(self, job: Job, cached: int) -> bool:
        margin = len(self._running) * self._size
        held = self._held + margin // 2
        taken = job.known + 1 - cached + self._prompts.owed
        return held + taken <= self.limits.bounds.kv_watermark * self._pool and held + taken + margin <= self._pool

    # --- steps -------------------------------------------------------------------------------------------------

    def _mixed_step(self, next_cached: int | None) -> None:
        """One step with prompt chunks in it, cut to what the streams beside them can bear. `next_cached`: what
        `_cached_of_next` has just said; None: it was not asked."""
        if self._held + self._decoding.count >= self._pool:
            self._make_room(self._decoding.count)
            next_cached = None
        bounds, decoders = self.limits.bounds, self._decoding.count
        beside = StepWork(0, 0.0, decoders, self._decoding.context + decoders)
        trusted = self._published if self.books.steps >= TRUSTED_STEPS else None
        tokens, own = max(MINIMUM_CHUNK, bounds.max_batched_tokens - decoders), ()  # nobody has a target of its own
        budget = PrefillBudget(tokens, trusted, beside, own, bounds.itl_target, self._correction.tail())
        room = self._pool - self._held - decoders
        first = 0 if next_cached is None else self._start(budget, next_cached)
        chunks = self._prompts.step(budget, room, self._begin, first)
        for job in chunks.done:
            if job.visit.arrival.blocks:
                self._cache.remember(job.visit.arrival.blocks)
        seconds = self._profile.predict(beside) + chunks.seconds
        if self._wrong and trusted is not None and decoders:
            work = beside._replace(prefill_tokens=chunks.tokens, prefill_context=chunks.context)
            self._correction.observe(seconds, trusted.predict(work))
        self._advance(1, seconds, chunks.tokens, chunks.context)
        for job in chunks.done:
            self._first_token(job)

    def _first_token(self, job: Job) -> None:
        """Its prompt is computed, which gives a token; the others follow one per step."""
        record = job.visit.record
        if record.first_at is None:
            record.first_at = self.clock
            self.tokens -= job.visit.load
            self.books.ttft.observe(self.clock - record.arrived_at)
        self.books.generated += 1
        job.left -= 1
        if job.left <= 0:
            self._end(job)
            return
        self._decoding.add(job)

    def _decode_run(self, until: float) -> None:
        """Decode-only steps up to the next end, tick or the first one that begins at `until` or later."""
        decoding, profile = self._decoding, self._profile
        decoders = decoding.count
        if self._held + decoders > self._pool and not self._make_room(decoders):
            return
        most = min(decoding.steps_to_end(), (self._pool - self._held) // decoders)
        first = profile.base + profile.sequence * decoders + profile.kv_token * (decoding.context + decoding.count)
        growth = profile.kv_token * decoders
        room = min(until, self._next_tick) - self.clock
        count = max(1, min(most, steps_within(first, growth, room)))
        span = count * first + growth * count * (count - 1) / 2
        self._advance(count, span, 0, 0.0, first, growth)

    def _advance(
        self, count: int, span: float, prompt: int, context: float, first: float = 0.0, growth: float = 0.0
    ) -> None:
        """`count` steps pass: everybody who decodes gains a token in each."""
        decoding, books = self._decoding, self.books
        decoders = decoding.count
        tokens = decoders * count
        self.clock += span
        self._held += prompt + tokens
        books.book(span, count, self._held_blocks(), tokens)
        if count > 1:
            books.itl.observe_ramp(first, growth, count, decoders)
        elif tokens:
            books.itl.observe(span, tokens)
        if self._moves:  # else nobody reads it
            self._window.record(self.clock, prompt, context, span / count, tokens, decoders)
        for job in decoding.advance(count):
            self._end(job)

    def _end(self, job: Job) -> None:
        record, asked = job.visit.record, job.visit.arrival.most(self._config.max_model_length)
        written = record.output - (record.output < asked)  # the token that says that it ends is delivered to nobody
        self.books.generated -= record.output - written
        record.ended_at = self.clock
        self._waiting.ended(job, written)
        self._leave(job)
        bounds = self.limits.bounds
        self.books.end(record.judge(bounds.ttft_target, bounds.itl_target))
        self._ended.learn(written, record.prompt - record.cached, self.clock - (job.started or 0.0))

    def _leave(self, job: Job) -> None:
        del self._running[job]
        self._held -= job.computed

    def _make_room(self, tokens: int) -> bool:
        """Preempt the latest while this step's tokens do not fit; False where nobody is left to take the step."""
        while self._running and self._held + max(1, tokens) > self._pool:
            job = next(reversed(self._running))
            if job.decoding:
                self._decoding.remove(job)
                tokens -= 1
            else:
                self._prompts.remove(job)
            self._leave(job)
            job.known, job.computed = job.visit.arrival.prompt + job.visit.arrival.output - job.left, 0
            self._waiting.come_back(job)
            self._preemptions += 1
        return bool(self._running)
