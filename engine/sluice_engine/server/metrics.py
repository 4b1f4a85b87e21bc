"""Keeps the series of `/metrics` from the engine's reports. Names, labels and buckets come from `sluice.metrics`.

The input is the messages of the engine's socket and the outcomes of requests; the module contains no HTTP and no
tensor. Every series exists from the first scrape (label values are defined, never a user's), so that no
rate starts from a missing series.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest

from sluice import __version__, contract
from sluice.metrics.create import create_counter, create_gauge, create_histogram
from sluice_engine import messages
from sluice_engine.config import EngineOptions
from sluice_engine.control.smoothing import smoothed
from sluice_engine.limits import LimitsInForce, at_start
from sluice_engine.server.containment import FaultLog, contained
from sluice_engine.server.vllm_metrics import VllmMetrics
from sluice_perfmodel.shadow_queues import LOAD_NAMES

Outcome = Literal["stop", "length", "abort", "error", "rejected"]
# `_created` series double the number of series, and those of a counter and a histogram with one name collide.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# By ascending severity: the outcome of a request is the most severe of its samples.
_BY_SEVERITY: Final[tuple[Outcome, ...]] = ("stop", "length", "abort", "error")


@dataclass(slots=True)
class _SampleTimes:
    """The state of one sample of a request. Times are monotonic seconds."""

    first_at: float
    last_at: float
    tokens: int


@dataclass(slots=True)
class _Record:
    """One request in flight with all its samples. Times are monotonic seconds."""

    arrived_at: float
    prompt_tokens: int
    open: int  # samples that have not finished
    begun: bool = False  # the engine has sent a delta for it
    samples: dict[str, _SampleTimes] = field(default_factory=dict)
    outcome: Outcome = "stop"

    @property
    def first_at(self) -> float:
        """Time of the first token of any sample; infinite if there is none."""
        return min((sample.first_at for sample in self.samples.values()), default=math.inf)

    @property
    def tokens(self) -> int:
        """Output tokens of all samples."""
        return sum(sample.tokens for sample in self.samples.values())

    @property
    def mean_gap(self) -> float | None:
        """Mean seconds between two tokens of a sample; None if no sample has two tokens."""
        gaps = self.tokens - len(self.samples)  # negative for a text's vector, which has no tokens
        return sum(a.last_at - a.first_at for a in self.samples.values()) / gaps if gaps > 0 else None


class EngineMetrics:
    """The metrics of one engine. Not thread-safe: one event loop updates and renders them.

    The methods that record never raise, because a fault in metrics must not fail a request. The fault is logged and
    counted in `sluice_metrics_faults_total`.
    """

    def __init__(
        self, options: EngineOptions, clock: Callable[[], float] = time.monotonic, vllm: VllmMetrics | None = None
    ) -> None:
        """`vllm`: the same under vLLM's names, None for without."""
        self._vllm = vllm
        self._clock = clock
        self._options = options
        self._records: dict[str, _Record] = {}
        self._steps: list[tuple[messages.StepReport, float]] = []  # whose output is not recorded yet
        self._last_report: messages.StepReport | None = None
        self._itl_target = options.limits.itl_target
        self._ttft_target = options.limits.ttft_target
        self._fault_log = FaultLog()
        self.mean_output: float | None = None  # output tokens of finished requests, smoothed
        self.revision = ""  # of a model that was fetched; set before `on_ready`
        self._registry = CollectorRegistry()
        # A registry of its own: prometheus_client reserves x for x_total, while the text format allows both.
        self._totals = CollectorRegistry()
        self._make_gauges()
        self._make_histograms()
        self._make_counters()
        self.on_limits(at_start(options.limits))

    def _make_gauges(self) -> None:
        self._running = create_gauge(contract.REQUESTS_RUNNING, self._registry)
        self._waiting = create_gauge(contract.REQUESTS_WAITING, self._registry)
        self._in_flight = create_gauge(contract.TOKENS_IN_FLIGHT, self._registry)
        self._occupancy = create_gauge(contract.KV_OCCUPANCY_RATIO, self._registry)
        self._blocks = create_gauge(contract.KV_BLOCKS, self._registry)
        self._limit = create_gauge(contract.ADMISSION_LIMIT, self._registry)
        self._model_seconds = create_gauge(contract.STEP_MODEL_SECONDS, self._registry)
        self._model_error = create_gauge(contract.STEP_MODEL_ERROR, self._registry)
        self._model_steps = create_gauge(contract.STEP_MODEL_STEPS, self._registry)
        self._load_phase = create_gauge(contract.LOAD_PHASE_SECONDS, self._registry)
        self._paced = create_gauge(contract.PACED, self._registry)
        self._paced.set(1.0 if self._options.pace is not None else 0.0)
        self._model_info = create_gauge(contract.MODEL_INFO, self._registry)
        self._cache_info = create_gauge(contract.CACHE_CONFIG_INFO, self._registry)

    def _make_histograms(self) -> None:
        self._ttft = create_histogram(contract.TIME_TO_FIRST_TOKEN, self._registry)
        self._itl = create_histogram(contract.INTER_TOKEN_LATENCY, self._registry)
        self._tpot = create_histogram(contract.TIME_PER_OUTPUT_TOKEN, self._registry)
        self._duration = create_histogram(contract.REQUEST_DURATION, self._registry)
        self._queue = create_histogram(contract.QUEUE_SECONDS, self._registry)
        self._step = create_histogram(contract.STEP_SECONDS, self._registry)
        self._prompt = create_histogram(contract.PROMPT_TOKENS, self._registry)
        self._output = create_histogram(contract.OUTPUT_TOKENS, self._registry)

    def _make_counters(self) -> None:
        self._arrived = create_counter(contract.REQUESTS_ARRIVED, self._totals)
        self._offered_again = create_counter(contract.REQUESTS_OFFERED_AGAIN, self._totals)
        self._requests = create_counter(contract.REQUESTS, self._registry)
        self._slo = create_counter(contract.SLO_REQUESTS, self._registry)
        self._rejections = create_counter(contract.REJECTIONS, self._registry)
        self._shadow_requests = create_counter(contract.SHADOW_REQUESTS, self._totals)
        self._shadow_unreachable = create_counter(contract.SHADOW_UNREACHABLE, self._totals)
        self._shadow_late = create_counter(contract.SHADOW_LATE, self._registry)
        self._block_seconds = create_counter(contract.KV_BLOCK_SECONDS, self._totals)
        self._busy = create_counter(contract.BUSY_SECONDS, self._totals)
        self._prompt_total = create_counter(contract.PROMPT_TOKENS_TOTAL, self._totals)
        self._cached_total = create_counter(contract.CACHED_PROMPT_TOKENS, self._totals)
        self._generated = create_counter(contract.GENERATED_TOKENS, self._totals)
        self._drafted = create_counter(contract.DRAFT_TOKENS, self._totals)
        self._accepted = create_counter(contract.ACCEPTED_DRAFT_TOKENS, self._totals)
        self._preemptions = create_counter(contract.PREEMPTIONS, self._totals)
        self._swaps = create_counter(contract.SWAPS, self._totals)
        self._faults = create_counter(contract.METRICS_FAULTS, self._totals)

    # --- messages of the engine ------------------------------------------------------------------------------------

    def on_fault(self, error: Exception) -> None:
        """Counts and logs an exception that lost a measurement."""
        self._faults.inc()
        self._fault_log.add(error)

    @contained
    def on_loading(self, message: messages.Loading) -> None:
        """Records the progress of the load."""
        if message.phase in contract.LOAD_PHASES:
            self._load_phase.labels(message.phase).set(message.seconds)

    @contained
    def on_ready(self, message: messages.Ready) -> None:
        """Records the engine's properties once it serves."""
        for phase, seconds in message.load_seconds.items():
            if phase in contract.LOAD_PHASES:
                self._load_phase.labels(phase).set(seconds)
        self._paced.set(1.0 if message.paced else 0.0)
        self._model_info.labels(__version__, message.dtype, self._options.served_name, self.revision).set(1)
        self._cache_info.labels(f"{message.block_size:g}", str(message.num_blocks)).set(1)
        self._blocks.labels("free").set(message.num_blocks)
        if self._vllm is not None:
            self._vllm.on_ready(message)

    def on_step(self, report: messages.StepReport, now: float) -> None:
        """Takes a step's output, read at `now` (monotonic seconds). It is recorded before anything that depends on it,
        and with the step's totals at the latest: a token need not wait for its measurement.
        """
        self._steps.append((report, now))

    def _record_steps(self) -> None:
        """Records the output of the steps taken so far, by the limits that each was computed under."""
        steps, self._steps = self._steps, []
        for report, now in steps:
            if self._last_report is None or self._last_report.limits != report.limits:
                self.on_limits(report.limits)
            for delta in report.deltas:
                try:
                    self._on_delta(delta, now)
                except Exception as error:  # noqa: BLE001 - the other deltas' requests are recorded
                    self.on_fault(error)

    @contained
    def on_report(self, report: messages.StepReport) -> None:
        """Records a step's totals, after its output."""
        self._record_steps()
        last = self._last_report
        self._integrate(report)
        self._running.set(report.running)
        self._waiting.set(report.waiting)
        self._in_flight.set(report.tokens_in_flight)
        total = report.blocks_held + report.blocks_cached + report.blocks_free
        self._occupancy.set(report.blocks_held / total if total else 0.0)
        for state, blocks in zip(
            contract.KV_STATES, (report.blocks_held, report.blocks_cached, report.blocks_free), strict=True
        ):
            self._blocks.labels(state).set(blocks)
        self._prompt_total.inc(report.prompt_tokens)
        self._cached_total.inc(report.cached_prompt_tokens)
        self._generated.inc(report.generated_tokens)
        self._preemptions.inc(report.preemptions)
        self._swaps.inc(report.swaps)
        self._drafted.inc(report.draft_tokens)
        self._accepted.inc(report.accepted_draft_tokens)
        if report.shadow is not None:
            self._count_shadow(report.shadow)
        if report.seconds > 0:
            self._step.observe(report.seconds)
        if last is None or last.model != report.model:
            for term, value in zip(contract.STEP_MODEL_TERMS, report.model, strict=True):
                self._model_seconds.labels(term).set(value)
        self._model_error.set(report.model_error)
        self._model_steps.set(report.model_steps)
        if self._vllm is not None:
            self._vllm.on_report(report)

    def on_rejected(self, message: messages.Rejected) -> None:
        """Records that the engine rejected a request."""
        self.rejected(message.request_id, message.reason)

    def on_limits(self, in_force: LimitsInForce) -> None:
        """Sets the limits and targets in force."""
        limits = in_force.limits
        self._itl_target = limits.itl_target
        self._ttft_target = limits.ttft_target
        values = (
            in_force.concurrency,
            limits.concurrency_min,
            limits.concurrency_max,
            limits.max_queue,
            limits.max_batched_tokens,
        )
        for kind, value in zip(contract.LIMIT_KINDS, values, strict=True):
            self._limit.labels(kind).set(value)

    # --- events of the HTTP side -----------------------------------------------------------------------------------

    @contained
    def started(
        self, names: Sequence[str], arrived_at: float, prompt_tokens: int, *, offered_before: bool = False
    ) -> None:
        """Records a valid request that is submitted to the engine.

        `names` are the ids of its samples in the engine; they count as one request. `offered_before` is True if another
        replica already counted the arrival of the request.
        """
        self._count_offer(offered_before)
        self._records.update(dict.fromkeys(names, _Record(arrived_at, prompt_tokens, len(names))))

    @contained
    def rejected_unsubmitted(self, reason: str, *, offered_before: bool = False) -> None:
        """Records a valid request that was rejected before submission to the engine."""
        self._count_offer(offered_before)
        self._count_rejection(reason)

    @contained
    def rejected(self, name: str, reason: str) -> None:
        """Records that the engine rejected the request with this name, or the request group that contains it.
        Idempotent.
        """
        self._record_steps()
        if self._records.pop(name, None) is not None:  # the record never completes, so the request is counted once
            self._count_rejection(reason)

    @contained
    def ended(self, name: str, outcome: Outcome) -> None:
        """Records the end of a sample that the engine did not finish: stop string, client disconnect or error.
        Idempotent.
        """
        self._record_steps()
        record = self._records.pop(name, None)
        if record is not None:
            self._count_end(record, outcome, self._clock())

    def pending_prompt_tokens(self) -> int:
        """Prompt tokens of the requests that have no output yet, cached ones included."""
        self._record_steps()
        pending = {id(record): record.prompt_tokens for record in self._records.values() if not record.samples}
        return sum(pending.values())

    def render(self) -> bytes:
        """Returns the metrics in Prometheus' text exposition format."""
        self._record_steps()
        own = generate_latest(self._registry) + generate_latest(self._totals)
        return own if self._vllm is None else own + self._vllm.render()

    # --- bookkeeping -----------------------------------------------------------------------------------------------

    def _on_delta(self, delta: messages.Delta, now: float) -> None:
        record = self._records.get(delta.request_id)
        if record is None:
            return
        new_tokens = len(delta.token_ids)
        if not record.begun:
            record.begun = True
            self._queue.observe(max(delta.queue_seconds, 0.0))
        if new_tokens or delta.vector:  # a vector is the complete output: its time counts as that of the first token
            sample = record.samples.get(delta.request_id)
            if sample is None:
                if not record.samples:
                    self._ttft.observe(now - record.arrived_at)
                sample = record.samples[delta.request_id] = _SampleTimes(now, now, 0)
                between, gap = max(new_tokens - 1, 0), 0.0
            else:
                between, gap = new_tokens, (now - sample.last_at) / new_tokens
            for _ in range(between):
                self._itl.observe(gap)
            sample.last_at = now
            sample.tokens += new_tokens
        if delta.finish is not None:
            del self._records[delta.request_id]
            self._count_end(record, delta.finish, now)

    def _count_end(self, record: _Record, outcome: Outcome, now: float) -> None:
        """Records the end of a sample and, with the last sample, the end of the request."""
        record.open -= 1
        record.outcome = outcome = max(record.outcome, outcome, key=_BY_SEVERITY.index)
        if record.open:
            return
        self._requests.labels(outcome).inc()
        self._duration.observe(now - record.arrived_at)
        self._prompt.observe(record.prompt_tokens)
        self._output.observe(record.tokens)
        mean = record.mean_gap
        if mean is not None:
            self._tpot.observe(mean)
        if outcome in ("stop", "length"):
            self.mean_output = smoothed(self.mean_output, float(record.tokens))
            ttft = record.first_at - record.arrived_at
            self._slo.labels(_slo_result(ttft <= self._ttft_target, (mean or 0.0) <= self._itl_target)).inc()

    def _count_offer(self, before: bool) -> None:
        (self._offered_again if before else self._arrived).inc()

    def _count_rejection(self, reason: str) -> None:
        self._requests.labels("rejected").inc()
        if reason in contract.REJECTION_REASONS:
            self._rejections.labels(reason).inc()

    def _count_shadow(self, counts: messages.ShadowCounts) -> None:
        self._shadow_requests.inc(counts.requests)
        self._shadow_unreachable.inc(counts.unreachable)
        for name, late in zip(LOAD_NAMES, counts.late, strict=True):
            self._shadow_late.labels(name).inc(late)

    def _integrate(self, report: messages.StepReport) -> None:
        """Adds blocks × seconds since the last report.

        The blocks held at the last report count until this step began. During the step the larger of both values
        counts, because a request that finished in this step held its blocks during it.
        """
        self._busy.inc(max(report.seconds, 0.0))
        last, self._last_report = self._last_report, report
        held_before = last.blocks_held if last is not None else 0
        span = max(report.ended_at - last.ended_at, 0.0) if last is not None else report.seconds
        stepping = min(max(report.seconds, 0.0), span)
        self._block_seconds.inc(held_before * (span - stepping) + max(held_before, report.blocks_held) * stepping)


def _slo_result(ttft_met: bool, itl_met: bool) -> str:
    if ttft_met:
        return "met" if itl_met else "missed_itl"
    return "missed_ttft" if itl_met else "missed_both"
