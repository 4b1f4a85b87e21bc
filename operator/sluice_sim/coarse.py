"""One engine for long days: the same rules as the real scheduler's, on counts in place of tokens and blocks.

Decode-only steps are taken in closed form from one event to the next; steps with prompts in them are taken one by
one. What is left out: which blocks are whose (a half-filled block per request is booked), the order within a step,
and a preempted request's own cached blocks (it computes everything again). Agreement with exact mode is measured
in tests/sim.
"""

from dataclasses import replace
from heapq import heappop, heappush

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
from sluice_sim.coarse_means import Means
from sluice_sim.coarse_prompts import CoarsePrompts
from sluice_sim.coarse_queue import CoarseQueue, Job, Room
from sluice_sim.fluid_window import FluidWindow, Piece
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
        self._profile, self._published, self._config = profile, published or profile, config
        self._pool, self._most = config.num_blocks * config.block_size, config.max_num_seqs
        self._window = FluidWindow()
        self._waiting = CoarseQueue(self.counters, config.policy == "priority")
        self._running: dict[Job, None] = {}  # in order of admission
        self._prompts = CoarsePrompts(profile)  # of those, the ones whose prompt is not computed yet
        self._decoding: list[tuple[int, int, Job]] = []  # a heap by end
        self._decoders = 0
        self._steps = 0  # decode steps: each gave every decoding request one token
        self._begun_sum = 0  # Σ begun over decoding requests
        self._held = 0  # computed tokens of running requests
        self._context = 0  # of those, the decoding ones'
        self._cache = CoarseCache(self._pool, config.block_size)
        self._ended = Means()
        self._preemptions = 0
        self._entries = 0
        self._next_tick = now
        self._moves = bounds.concurrency_min < bounds.concurrency_max  # the fast loop has had something to choose
        self._trusted = replace(self._published, steps=TRUSTED_STEPS)
        self._correction = TailCorrection()
        self._wrong = self._published != profile  # else there is nothing to correct, and rounding must not look like it
        self._learned = replace(self._published, steps=0)  # what the fast loop knows of the steps so far

    @property
    def requests(self) -> int:
        """In flight here, running or waiting."""
        return len(self._running) + len(self._waiting)

    def submit(self, visit: Visit) -> Visit | None:
        """A request arrives. Says who is refused: the request itself, one that waited and makes way for it, or nobody."""
        self.books.arrived += not visit.offered_before
        self.books.again += visit.offered_before
        free = min(self.limits.concurrency, self._config.max_num_seqs) - len(self._running)
        full = len(self._waiting) >= self.limits.bounds.max_queue + max(0, free)
        job = Job(visit, visit.arrival.prompt, visit.arrival.output)
        pace = None
        if self._config.late_last:  # else nobody asks
            pace = self._pace() if self.books.steps >= TRUSTED_STEPS else None
            cached = self._cache.hit(visit.arrival.blocks, job.known)
            job.work = prefill_seconds(self._published, Work(0, job.known - cached, cached))
        bounds, now = self.limits.bounds, max(self.clock, visit.record.arrived_at)
        longest, output = self._config.max_model_length, self._ended.output or 0.0
        room = Room(now, full, longest, output, bounds.ttft_target, unavoidable_gap(longest, self._pool), pace)
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
            prefill_seconds(model, Work(0, job.known - job.computed, job.computed)) for job in self._prompts.jobs
        )
        work = StepWork(sequences=self._decoders, kv_tokens=self._context)
        prompts, beside = full_step(model, work, bounds.itl_target, bounds.max_batched_tokens)
        return Pace(
            begun=begun,
            share=prompts / (prompts + beside),
            free=max(0, limit - len(self._running)),
            between=0.0 if self._ended.residence is None else self._ended.residence / max(1, limit),
            step=prompts + beside if self._running else 0.0,
        )

    def run_until(self, until: float, lazily: bool = False) -> None:
        """Take every step that begins before `until`."""
        del lazily  # nothing here costs more when it is taken early
        prompts, waiting = self._prompts.jobs, self._waiting
        while self.clock < until:
            if self.clock >= self._next_tick or self.limits.expires_at is not None:
                self._tick()
            if prompts or ((waiting.line or waiting.late) and self._may_begin()):
                self._mixed_step()
            elif self._decoders:
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
        if self._learned.steps < TRUSTED_STEPS:
            self._learned = replace(self._published, steps=self.books.steps)
        least, most = self.limits.bounds.concurrency_min, self.limits.bounds.concurrency_max
        if least < most:  # else nothing can move
            self._moves = True
            self.limits.tick(self.clock, self._learned, self._load())

    def _load(self) -> EngineLoad:
        running, seen = len(self._running), self._window.figures(self.clock)
        size = self._config.block_size
        return EngineLoad(
            running=running,
            waiting=len(self._waiting),
            mean_context=self._held / running if running else 0.0,
            prefill_rate=seen.prefill_rate,
            prefill_context_rate=seen.prefill_context_rate,
            observed_itl=seen.p95,
            kv_tokens_total=self._pool,
            kv_tokens_held=self._held_blocks() * size,
            growth_per_sequence=self._growth(),
            mean_itl=seen.mean,
            mean_sequences=seen.sequences,
            written_per_sequence=self._written(),
            prompt_per_output=self._ended.prompt_per_output,
        )

    def _written(self) -> float:
        """Tokens that a running request has written, on the mean."""
        return self._steps - self._begun_sum / self._decoders if self._decoders else 0.0

    def _growth(self) -> float:
        """Tokens that a running request is expected still to write: what is known of the mean, less what it wrote."""
        if not self._decoders:
            return self._ended.output or 0.0
        written = self._written()
        mean = written * 2.0 if self._ended.output is None else self._ended.output
        return max(1.0, mean - written)

    def _held_blocks(self) -> int:
        config = self._config
        size = config.block_size
        return min(config.num_blocks, (self._held + len(self._running) * (size // 2)) // size)

    # --- admission ---------------------------------------------------------------------------------------------

    def _may_begin(self) -> bool:
        """Whether the first that waits may begin: a place is free, and memory."""
        waiting, running = self._waiting, len(self._running)
        if not (waiting.line or waiting.late) or running >= self.limits.concurrency or running >= self._most:
            return False
        job = waiting.first
        if job.late and running and self.clock < waiting.late_from:
            return False
        return not running or self._fits(job, self._cache.hit(job.visit.arrival.blocks, job.known))

    def _begin(self, budget: PrefillBudget) -> int:
        """The first that waits begins, if it may and the step has a chunk for it, whose tokens are returned; 0 where nobody
        does. Only asked for when a step has room for its prompt: until then those before it may still compute what it
        shares with them."""
        if not self._may_begin():
            return 0
        job = self._waiting.first
        cached = self._cache.hit(job.visit.arrival.blocks, job.known)
        chunk = budget.chunk(job.known - cached, cached)
        if chunk <= 0:
            return 0
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
        margin = len(self._running) * self._config.block_size
        held = self._held + margin // 2
        taken = job.known + 1 - cached + self._prompts.owed
        return held + taken <= self.limits.bounds.kv_watermark * self._pool and held + taken + margin <= self._pool

    # --- steps -------------------------------------------------------------------------------------------------

    def _mixed_step(self) -> None:
        """One step with prompt chunks in it, cut to what the streams beside them can bear."""
        if self._held + self._decoders >= self._pool:
            self._make_room(self._decoders)
        decoding = StepWork(sequences=self._decoders, kv_tokens=self._context + self._decoders)
        bounds = self.limits.bounds
        trusted = self._trusted if self.books.steps >= TRUSTED_STEPS else None
        budget = PrefillBudget(
            tokens=max(MINIMUM_CHUNK, bounds.max_batched_tokens - self._decoders),
            model=trusted,
            decode=decoding,
            itl_targets=(bounds.itl_target,),
            itl_default=bounds.itl_target,
            tail=self._correction.tail(),
        )
        chunks = self._prompts.step(budget, self._pool - self._held - self._decoders, self._begin)
        for job in chunks.done:
            if job.visit.arrival.blocks:
                self._cache.remember(job.visit.arrival.blocks)
        seconds = self._profile.predict(decoding) + chunks.seconds
        if self._wrong and trusted is not None and decoding.sequences:
            work = replace(decoding, prefill_tokens=chunks.tokens, prefill_context=chunks.context)
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
        job.decoding, job.begun, job.ends = True, self._steps, self._steps + job.left
        self._decoders += 1
        self._begun_sum += job.begun
        self._context += job.computed
        self._entries += 1
        heappush(self._decoding, (job.ends, self._entries, job))

    def _decode_run(self, until: float) -> None:
        """Decode-only steps up to the next end, tick or the first one that begins at `until` or later."""
        decoders, profile = self._decoders, self._profile
        if self._held + decoders > self._pool and not self._make_room(decoders):
            return
        ends, _, job = self._decoding[0]
        if not job.decoding or job.ends != ends:
            self._drop_stale()
            ends = self._decoding[0][0]
        most = min(ends - self._steps, (self._pool - self._held) // decoders)
        first = profile.base + profile.sequence * decoders + profile.kv_token * (self._context + self._decoders)
        growth = profile.kv_token * decoders
        room = min(until, self._next_tick) - self.clock
        count = max(1, min(most, steps_within(first, growth, room)))
        span = count * first + growth * count * (count - 1) / 2
        self._advance(count, span, 0, 0.0, first, growth)

    def _advance(
        self, count: int, span: float, prompt: int, context: float, first: float = 0.0, growth: float = 0.0
    ) -> None:
        """`count` steps pass: everybody who decodes gains a token in each."""
        decoders, books, decoding = self._decoders, self.books, self._decoding
        tokens = decoders * count
        self.clock += span
        self._steps = steps = self._steps + count
        self._held += prompt + tokens
        self._context += tokens
        books.book(span, count, self._held_blocks(), tokens)
        if count > 1:
            books.itl.observe_ramp(first, growth, count, decoders)
        elif tokens:
            books.itl.observe(span, tokens)
        if self._moves:  # else nobody reads it
            self._window.record(Piece(self.clock, prompt, context, span / count, tokens, decoders))
        while decoding and decoding[0][0] <= steps:
            _, _, job = heappop(decoding)
            if job.decoding and job.ends <= steps:
                self._stop(job)
                self._end(job)

    def _stop(self, job: Job) -> None:
        """It decodes no more: book what it wrote."""
        written = self._steps - job.begun
        job.decoding = False
        job.computed += written
        job.left -= written
        self._decoders -= 1
        self._begun_sum -= job.begun
        self._context -= job.computed

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
                self._stop(job)
                tokens -= 1
            else:
                self._prompts.remove(job)
            self._leave(job)
            job.known, job.computed = job.visit.arrival.prompt + job.visit.arrival.output - job.left, 0
            self._waiting.come_back(job)
            self._preemptions += 1
        return bool(self._running)

    def _drop_stale(self) -> None:
        """Entries of jobs that were preempted since."""
        while not self._decoding[0][2].decoding or self._decoding[0][2].ends != self._decoding[0][0]:
            heappop(self._decoding)
