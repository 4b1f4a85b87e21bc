"""One engine for long traces: the rules of the real scheduler on aggregate counts in place of tokens and blocks.

Decode-only steps are taken in closed form from one event to the next; steps with prefill are taken one by one. Three
things are not modelled: block tables (a half-filled block per request is added instead), the order within a step, and
the cached blocks of a preempted request (it computes everything again). tests/sim measures the agreement with exact
mode.
"""

from dataclasses import replace
from math import inf

from sluice_engine.control.limit_controller import TICK_SECONDS, LimitController, predicted_wait
from sluice_engine.control.shadow_observer import DecodeProgress, ShadowObserver, shadow_limits
from sluice_engine.control.tail_correction import TailCorrection
from sluice_engine.limits import Limits
from sluice_engine.scheduler import SchedulerConfig
from sluice_engine.scheduler.chunking import LONGEST_STEP, MINIMUM_CHUNK
from sluice_engine.scheduler.load_shedding.lateness import YIELD_SECONDS, ServiceRate, full_step
from sluice_engine.scheduler.policies.tenants import TenantCounters, unavoidable_gap
from sluice_engine.scheduler.prefill_budget import PrefillBudget
from sluice_operator.autoscaler.values import EngineSample
from sluice_perfmodel.concurrency_limit import EngineLoad
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.step_time import StepTimeModel, StepWork
from sluice_perfmodel.workload import Work, prefill_seconds
from sluice_sim.engine.coarse.cache import CoarseCache
from sluice_sim.engine.coarse.decoding import Decoding
from sluice_sim.engine.coarse.finished_means import FinishedRequestMeans
from sluice_sim.engine.coarse.load_window import CoarseLoadWindow
from sluice_sim.engine.coarse.prefill import CoarsePrefill
from sluice_sim.engine.coarse.waiting_queue import ArrivalConditions, CoarseQueue, CoarseRequest
from sluice_sim.engine.exposition import EngineCounters, EngineState, shadow_totals
from sluice_sim.engine.offered_request import OfferedRequest
from sluice_sim.engine.ramp import steps_within


class CoarseEngine:
    """An engine with the interface of SimEngine.

    A step that began before an arrival is completed first, so the clock may be up to one step ahead."""

    def __init__(
        self,
        profile: StepTimeModel,
        config: SchedulerConfig,
        bounds: Limits,
        now: float,
        published: StepTimeModel | None = None,
    ) -> None:
        self.limits = LimitController(bounds)
        self.counters = EngineCounters()
        self.tenant_counters = TenantCounters()
        self.clock = now
        self.pending_prefill_tokens = 0
        published_model = published or profile
        self._profile, self._config = profile, config
        # Like an engine's, it is used only after as many steps.
        self._published = replace(published_model, steps=PERFMODEL.limit.least_model_steps)
        self._blocks, self._size, self._max_num_seqs = config.num_blocks, config.block_size, config.max_num_seqs
        self._pool = self._blocks * self._size
        self._window = CoarseLoadWindow()
        longest, by_priority = config.max_model_length, config.policy == "priority"
        self._waiting = CoarseQueue(self.tenant_counters, longest, unavoidable_gap(longest, self._pool), by_priority)
        self._running: dict[CoarseRequest, None] = {}  # in order of admission
        self._prefill = CoarsePrefill(profile)  # running jobs whose prompt is not computed yet
        self._decoding = Decoding()
        self._held = 0  # computed tokens of running requests
        self._cache = CoarseCache(self._pool, config.block_size)
        self._finished_means = FinishedRequestMeans()
        self._shadow = ShadowObserver()
        self._preemptions = 0
        self._next_tick = now
        # Whether the fast loop has had a range to choose from.
        self._limit_can_move = bounds.concurrency_min < bounds.concurrency_max
        self._correction = TailCorrection()
        # With a correct model, the correction would only fit rounding errors.
        self._model_is_wrong = published_model != profile

    @property
    def requests(self) -> int:
        """Requests in flight: running or waiting."""
        return len(self._running) + len(self._waiting)

    def submit(self, request: OfferedRequest) -> OfferedRequest | None:
        """Submit a request.

        Returns the request that is not kept: this one if it is rejected, a waiting one if it is evicted, else None."""
        bounds, offered_before = self.limits.current, request.offered_before
        self.counters.arrived += not offered_before
        self.counters.offered_again += offered_before
        free = min(self.limits.concurrency, self._max_num_seqs) - len(self._running)
        full = len(self._waiting) >= bounds.max_queue + max(0, free)
        one = request.arrival
        job = CoarseRequest(request, str(request.number), one.prompt, one.output)
        pace = None
        if self._config.late_last:  # otherwise `pace` and `work` are unused
            pace = self._pace() if self.counters.steps >= PERFMODEL.limit.least_model_steps else None
            cached = self._cache.hit(one.blocks, job.known)
            job.work = prefill_seconds(self._published, Work(0, job.known - cached, cached))
            job.due = request.record.arrived_at + bounds.ttft_target if pace is not None else inf
        if not offered_before:
            self._observe_arrival(request)
        now = max(self.clock, request.record.arrived_at)
        conditions = ArrivalConditions(now, full, self._finished_means.output or 0.0, bounds.ttft_target, pace)
        refused = self._waiting.offer(job, conditions, self._max_deferral)
        self.pending_prefill_tokens += request.prefill_tokens
        if refused is None:
            return None
        self.counters.rejected += 1
        self.pending_prefill_tokens -= refused.request.prefill_tokens
        return refused.request

    def _observe_arrival(self, request: OfferedRequest) -> None:
        """Give the shadow queues a request that is new to the fleet."""
        one, decoding = request.arrival, self._decoding
        cached = self._cache.hit(one.blocks, one.prompt)
        context = decoding.context / decoding.count if decoding.count else None
        progress = DecodeProgress(self.counters.generated, self.counters.finished, context)
        prompt = Work(1.0, one.prompt - cached, cached)
        limits = shadow_limits(self.limits.current, self._pool, self._max_num_seqs)
        model = self._published if self.counters.steps >= PERFMODEL.limit.least_model_steps else None
        self._shadow.arrive(request.record.arrived_at, prompt, limits, model, progress)

    def _max_deferral(self) -> float:
        bounds, limit = self.limits.current, self.limits.concurrency
        residence = self._finished_means.residence or bounds.ttft_target
        return max(predicted_wait(bounds.max_queue, limit, limit, residence), bounds.ttft_target)

    def _pace(self) -> ServiceRate:
        """The pace at which the engine serves its queue, as `load_shedding.rejection.service_rate` computes it."""
        model, bounds, limit = self._published, self.limits.current, self.limits.concurrency
        begun = sum(
            [prefill_seconds(model, Work(0, job.known - job.computed, job.computed)) for job in self._prefill.jobs]
        )
        work = StepWork(0, 0.0, self._decoding.count, self._decoding.context)
        longest = LONGEST_STEP * bounds.ttft_target
        prompts, beside = full_step(model, work, bounds.itl_target, bounds.max_batched_tokens, longest)
        full, running, residence = prompts + beside, len(self._running), self._finished_means.residence
        between = 0.0 if residence is None else residence / max(1, limit)
        return ServiceRate(begun, prompts / full, max(0, limit - running), between, full if running else 0.0)

    def run_until(self, until: float, *, lazily: bool = False) -> None:
        """Take every step that begins before `until`."""
        del lazily  # taking steps early costs nothing in a coarse engine
        prompts, limits = self._prefill, self.limits
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
        """The current metrics, as the operator's parser would return them."""
        return self.counters.sample(self.state())

    def state(self) -> EngineState:
        """The engine's state at this instant."""
        held = self._held_blocks()
        return EngineState(
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
            shadow=shadow_totals(self._shadow.queues),
        )

    def lost(self) -> list[OfferedRequest]:
        """The requests in flight, which a failure of the replica loses."""
        return [job.request for job in (*self._running, *self._waiting)]

    # --- time --------------------------------------------------------------------------------------------------

    def _idle(self, until: float) -> None:
        while self._next_tick <= until and self.limits.concurrency < self.limits.current.concurrency_max:
            self.clock = max(self.clock, self._next_tick)
            self._tick()
        self.clock = max(self.clock, until)

    def _tick(self) -> None:
        self.limits.expire(self.clock)
        if self.clock < self._next_tick:
            return
        self._next_tick = self.clock + TICK_SECONDS
        least, most = self.limits.current.concurrency_min, self.limits.current.concurrency_max
        if least < most:  # otherwise the limit is fixed
            self._limit_can_move = True
            model = self._published if self.counters.steps >= PERFMODEL.limit.least_model_steps else None
            self.limits.tick(self.clock, model, self._load())

    def _load(self) -> EngineLoad:
        running, seen = len(self._running), self._window.statistics(self.clock)
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
            prompt_per_output=self._finished_means.prompt_per_output,
        )

    def _growth(self) -> float:
        """Expected remaining output tokens of a running request: the mean output less the tokens generated so far."""
        if not self._decoding.count:
            return self._finished_means.output or 0.0
        written = self._decoding.written
        mean = written * 2.0 if self._finished_means.output is None else self._finished_means.output
        return max(1.0, mean - written)

    def _held_blocks(self) -> int:
        size = self._size
        return min(self._blocks, (self._held + len(self._running) * (size // 2)) // size)

    # --- admission ---------------------------------------------------------------------------------------------

    def _cached_of_next(self, late: bool = True) -> int | None:
        """Cached tokens of the first waiting job if the limits and the memory let it start; None otherwise.

        `late`: also of one that cannot be in time any more, if no other waits."""
        waiting = self._waiting
        if not (waiting.line or (late and waiting.late)):
            return None
        running = len(self._running)
        if running >= self.limits.concurrency or running >= self._max_num_seqs:
            return None
        if waiting.first_in_time(self.clock) is None and not late:
            return None
        job = waiting.first
        cached = self._cache.hit(job.request.arrival.blocks, job.known)
        return cached if not running or self._fits(job, cached) else None

    def _begin(self, budget: PrefillBudget, late: bool) -> int:
        """Start the first waiting job if it may start and the budget has a chunk for it; a late one only if `late`.

        Returns the tokens of the chunk, 0 if no job starts. Called only when a step has room for its prompt: until
        then, earlier jobs may still compute a prefix that it shares."""
        cached = self._cached_of_next(late)
        return 0 if cached is None else self._start(budget, cached)

    def _is_late(self, job: CoarseRequest) -> bool:
        """Whether a running job yields to others: it cannot be in time any more, even alone (for YIELD_SECONDS)."""
        left = prefill_seconds(self._published, Work(0, job.known - job.computed, job.computed))
        return self.clock + left > job.due and self.clock <= job.due + YIELD_SECONDS

    def _start(self, budget: PrefillBudget, cached: int) -> int:
        """Start the first waiting job if the budget has a chunk for it. Returns the chunk; both in tokens."""
        job = self._waiting.first
        chunk = budget.chunk(job.known - cached, cached)
        if chunk <= 0:
            return 0
        if cached:
            self._cache.use(job.request.arrival.blocks, cached)
        self._waiting.start(cached)
        job.started = self.clock if job.started is None else job.started
        job.computed, job.decoding = cached, False
        self._held += cached
        self._running[job] = None
        self._prefill.add(job)
        if job.request.record.first_at is None:
            self.counters.prompt_tokens += job.known
            self.counters.cached_tokens += cached
            job.request.record.cached = cached
        return chunk

    def _fits(self, job: CoarseRequest, cached: int) -> bool:
        margin = len(self._running) * self._size
        held = self._held + margin // 2
        taken = job.known + 1 - cached + self._prefill.remaining_tokens
        return held + taken <= self.limits.current.kv_watermark * self._pool and held + taken + margin <= self._pool

    # --- steps -------------------------------------------------------------------------------------------------

    def _mixed_step(self, next_cached: int | None) -> None:
        """Take one step with prompt chunks, cut so that the decoding requests keep their inter-token target.

        `next_cached`: the result of `_cached_of_next` just now; None if it was not called."""
        if self._held + self._decoding.count >= self._pool:
            self._preempt_until_fits(self._decoding.count)
            next_cached = None
        bounds, decoders = self.limits.current, self._decoding.count
        beside = StepWork(0, 0.0, decoders, self._decoding.context + decoders)
        usable = self._published if self.counters.steps >= PERFMODEL.limit.least_model_steps else None
        tokens, own = max(MINIMUM_CHUNK, bounds.max_batched_tokens - decoders), ()  # no per-request ITL targets
        longest = LONGEST_STEP * bounds.ttft_target if self._config.late_last else inf
        tail = self._correction.tail()
        budget = PrefillBudget(tokens, usable, beside, own, bounds.itl_target, tail, longest_step=longest)
        room = self._pool - self._held - decoders
        if self._config.late_last:
            self._prefill.sort_late(self._is_late)
        first = 0 if next_cached is None else self._start(budget, next_cached)
        chunks = self._prefill.step(budget, room, self._begin, first)
        for job in chunks.done:
            if job.request.arrival.blocks:
                self._cache.insert(job.request.arrival.blocks)
        seconds = self._profile.predict(beside) + chunks.seconds
        if self._model_is_wrong and usable is not None and decoders:
            work = beside._replace(prefill_tokens=chunks.tokens, prefill_context=chunks.context)
            self._correction.observe(seconds, usable.predict(work))
        self._advance(1, seconds, chunks.tokens, chunks.context)
        for job in chunks.done:
            self._first_token(job)

    def _first_token(self, job: CoarseRequest) -> None:
        """Record the first token, which the end of the prefill yields; the others follow one per step."""
        record = job.request.record
        if record.first_at is None:
            record.first_at = self.clock
            self.pending_prefill_tokens -= job.request.prefill_tokens
            self.counters.ttft.observe(self.clock - record.arrived_at)
        self.counters.generated += 1
        job.left -= 1
        if job.left <= 0:
            self._end(job)
            return
        self._decoding.add(job)

    def _decode_run(self, until: float) -> None:
        """Take decode-only steps up to the next end or tick, and only steps that begin before `until`."""
        decoding, profile = self._decoding, self._profile
        decoders = decoding.count
        if self._held + decoders > self._pool and not self._preempt_until_fits(decoders):
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
        """Take `count` steps in `span` seconds; every decoding job gains one token per step."""
        decoding, counters = self._decoding, self.counters
        decoders = decoding.count
        tokens = decoders * count
        self.clock += span
        self._held += prompt + tokens
        counters.add_steps(span, count, self._held_blocks(), tokens)
        if count > 1:
            counters.itl.observe_ramp(first, growth, count, decoders)
        elif tokens:
            counters.itl.observe(span, tokens)
        if self._limit_can_move:  # otherwise the window is never read
            self._window.record(self.clock, prompt, context, span / count, tokens, decoders)
        for job in decoding.advance(count):
            self._end(job)

    def _end(self, job: CoarseRequest) -> None:
        record, asked = job.request.record, job.request.arrival.most(self._config.max_model_length)
        written = record.output - (record.output < asked)  # the end-of-sequence token is not delivered
        self.counters.generated -= record.output - written
        record.ended_at = self.clock
        self._waiting.charge_finished(job, written)
        self._release(job)
        bounds = self.limits.current
        self.counters.count_finished(record.apply_slo(bounds.ttft_target, bounds.itl_target))
        self._finished_means.observe(written, record.prompt - record.cached, self.clock - (job.started or 0.0))

    def _release(self, job: CoarseRequest) -> None:
        del self._running[job]
        self._held -= job.computed

    def _preempt_until_fits(self, tokens: int) -> bool:
        """Preempt the youngest jobs until the step's tokens fit. Returns False if no running job remains."""
        while self._running and self._held + max(1, tokens) > self._pool:
            job = next(reversed(self._running))
            if job.decoding:
                self._decoding.remove(job)
                tokens -= 1
            else:
                self._prefill.remove(job)
            self._release(job)
            job.known, job.computed = job.request.arrival.prompt + job.request.arrival.output - job.left, 0
            job.due = inf
            self._waiting.requeue(job)
            self._preemptions += 1
        return bool(self._running)
