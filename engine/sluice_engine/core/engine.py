"""The engine without its socket, so that `process.py`, the offline API, tests and benchmarks drive the same loop.

One step is plan → run → settle. With overlap, the next step is planned, prepared and queued while the current one runs;
it begins when the current one ends, and runs while the results of the current one are settled and reported. Calls between
two steps (submit, cancel, limits) take effect in the next plan. Everything except the model runs on the caller's
thread.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable

from sluice_engine import messages
from sluice_engine.backend.base import Backend
from sluice_engine.config import EngineOptions
from sluice_engine.control.limit_controller import LimitController
from sluice_engine.control.load_window import LoadWindow
from sluice_engine.control.step_time_fit import StepTimeFit
from sluice_engine.core.executor import RunningStep, StepPipeline
from sluice_engine.core.ranks.leading_runner import LeadingRunner, OtherRanks
from sluice_engine.core.startup import LoadedEngine, Progress
from sluice_engine.core.step_report import StepReporter, snapshot
from sluice_engine.core.translation import delta_of, kv_events_of, request_of, seed_of
from sluice_engine.kvcache.event_log import EventLog
from sluice_engine.scheduler import Plan, Scheduler
from sluice_engine.scheduler.lookahead import planning_time
from sluice_perfmodel.settings import PERFMODEL

_log = logging.getLogger(__name__)


class EngineLoop:
    """A loaded model, its scheduler and its limits. Raises an `errors.StartError` when it cannot start.

    `backend`: None picks the one of `options.device`. `others`: the other ranks of the model, which compute its plans too.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        on_progress: Progress = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        backend: Backend | None = None,
        others: OtherRanks | None = None,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self.options = options
        self._loaded = LoadedEngine(options, on_progress, clock, backend)
        self.model, self.runner = self._loaded.model, self._loaded.runner
        runner = self.runner if others is None else LeadingRunner(self.runner, others)
        self._pipeline = StepPipeline(runner, options.overlap, self._loaded.threads, options.pace)
        self.limits = LimitController(options.base_limits)
        self.scheduler = Scheduler(self._loaded.config, self.limits)
        self.fit = StepTimeFit()
        self.window = LoadWindow()
        self._step_reporter = StepReporter(self.scheduler, self.limits)
        self.last_steps = self._step_reporter.last_steps
        self._final_deltas: list[messages.Delta] = []
        self._limits_changed = False
        self._running_step: RunningStep | None = None  # begun and not settled
        self._queued_step: RunningStep | None = None  # begins when the running step ends
        self._last_end: float | None = None

    @property
    def ready(self) -> messages.Ready:
        """The message that tells the HTTP process that the engine serves."""
        return self._loaded.ready(paced=self.options.pace is not None)

    @property
    def seconds_until_planning(self) -> float:
        """Predicted seconds until the next step must be planned, so late that new requests join it. 0 without a running
        step, a usable step-time model or overlap, and once the step has ended: a prediction may be too long.
        """
        step = self._running_step
        if step is None or not self._pipeline.overlapped or (step.pace is None and step.is_computed()):
            return 0.0
        at = planning_time(step.plan, step.begun, self.fit.model)
        return max(0.0, (at if step.end_of_pace is None else min(at, step.end_of_pace)) - self._clock())

    def when_step_ends(self, call: Callable[[], None]) -> None:
        """Call this after each step, on another thread."""
        self._pipeline.on_end = call

    @property
    def has_work(self) -> bool:
        """True if a step would compute something or a report is due."""
        return bool(self.scheduler.requests or self._running_step or self._report_due)

    @property
    def _report_due(self) -> bool:
        """True if there is something to report although no step ends."""
        return bool(self._final_deltas or self._limits_changed or self._step_reporter.arrivals_due)

    def submit(self, message: messages.Submit | messages.Encode) -> messages.Rejected | None:
        """Queue a request. Returns the rejection, of this request or of an evicted waiting request, or None. A request
        that can never run finishes with an error in the next report.
        """
        samples = message.samples if isinstance(message, messages.Submit) else ()
        try:
            request = request_of(message, self.model)
            more = [
                request.another_sample(name, dataclasses.replace(request.sampling, seed=seed_of(seed)))
                for name, seed in samples
            ]
            rejection = self.scheduler.submit(request, more)
        except Exception as error:  # noqa: BLE001 - one request's failure must not stop the loop
            names = (message.request_id, *(name for name, _ in samples))
            self._final_deltas += [messages.Delta(name, (), "error", str(error)) for name in names]
            return None
        if rejection is None:
            return None
        return messages.Rejected(rejection.request_id, rejection.reason, rejection.retry_after, rejection.message)

    def cancel(self, message: messages.Cancel) -> None:
        """End a request immediately and free its blocks; unknown and finished ids are ignored."""
        if self.scheduler.cancel(message.request_id):
            self._final_deltas.append(messages.Delta(message.request_id, (), message.reason))

    def patch(self, message: messages.LimitsPatch) -> None:
        """Change limits for a time, from the next step on."""
        self.limits.patch(message.changes, message.ttl, self._clock())
        self._limits_changed = True

    def set_base_limits(self, message: messages.BaseLimits) -> None:
        """Replace the limits that hold without a patch, from the next step on."""
        self.limits.set_base(message.limits)
        self._limits_changed = True

    def set_tenant_weights(self, message: messages.TenantWeights) -> None:
        """Replace the tenants' weights: what is charged from now on counts by them."""
        self.scheduler.state.counters.set_weights(message.weights)

    def follow_kv(self, message: messages.FollowKv) -> None:
        """Record what happens to the blocks of tagged prompts, or no longer."""
        self.scheduler.pool.log = EventLog() if message.on else None

    def take_kv_events(self) -> messages.KvEvents | None:
        """What has happened to them since the last call; None for nothing."""
        log = self.scheduler.pool.log
        events = None if log is None else log.take()
        return kv_events_of(events) if events else None

    def drain(self) -> None:
        """Reject new requests from now on and finish the accepted ones."""
        self.scheduler.drain()

    def tick(self) -> None:
        """The fast loop, at most once a second: expire a patch and adjust the concurrency limit inside its bounds."""
        now = self._clock()
        self._limits_changed |= self.limits.expire(now)
        if self.limits.due(now):
            # A pooling model has no inter-token latency, so only the bounds set its concurrency limit.
            model = None if self.model.pooled is not None else self.fit.model
            self._limits_changed |= self.limits.tick(now, model, self.window.load(self.scheduler.occupancy, now))

    def step(self) -> messages.StepReport | None:
        """Run one step and return its report, or a report without a step if only limits changed or a request finished or
        was rejected, else None. With overlap, the next step already runs when this returns.
        """
        self.tick()
        if self._running_step is None:
            self._running_step = self._begin()
        if self._running_step is None:
            self._last_end = None
            return self._report(None, (), self._clock(), 0.0) if self._report_due else None
        if self._queued_step is None:
            self._queued_step = self._queue_ahead()
        return self._finish(self._running_step)

    def finish_running_steps(self) -> list[messages.StepReport]:
        """Finish the running step, and the step queued behind it if waiting for the first was interrupted: blocks
        that a plan has registered in the prefix index must be computed. Plans no further step.
        """
        reports: list[messages.StepReport] = []
        while self._running_step is not None:
            reports.append(self._finish(self._running_step))
        return reports

    def cancel_all(self, names: Iterable[str]) -> None:
        """Cancel these requests and finish the running step."""
        for name in names:
            self.cancel(messages.Cancel(name, "abort"))
        self.finish_running_steps()

    def _finish(self, step: RunningStep) -> messages.StepReport:
        result = step.result()  # the wait may be interrupted and repeated
        if step.end_of_pace is not None:
            self._sleep(max(0.0, step.end_of_pace - self._clock()))
        ended = self._clock()
        queued, self._queued_step = self._queued_step, None
        self._running_step = None if queued is None else dataclasses.replace(queued, begun=ended)
        plan = step.plan if result.cut is None else step.plan.shortened(result.cut)
        seconds = ended - step.begun if result.seconds is None or step.pace is not None else result.seconds
        outcomes = self.scheduler.settle(plan, result.sampled, ended, result.errors, result.accepted)
        self._last_end = ended if self.scheduler.requests else None
        self._learn(plan, seconds)
        self.window.record(plan.work, [gap for outcome in outcomes for gap in outcome.gaps], ended)
        return self._report(plan, [delta_of(outcome, result) for outcome in outcomes], ended, seconds)

    def _report(
        self, plan: Plan | None, deltas: Iterable[messages.Delta], ended: float, seconds: float
    ) -> messages.StepReport:
        deltas = (*self._final_deltas, *deltas)
        self._final_deltas.clear()
        self._limits_changed = False
        return self._step_reporter.report(plan, deltas, ended, seconds, self.fit.model)

    def _begin(self) -> RunningStep | None:
        """Plan and begin a step while none runs."""
        now = self._clock()
        plan = self.scheduler.plan(now, self.fit.model)
        if plan is None:
            return None
        # With continuous work a step begins at the end of the last one, so that host time between them is counted.
        return self._pipeline.begin(self._pipeline.prepare(plan), now if self._last_end is None else self._last_end)

    def _queue_ahead(self) -> RunningStep | None:
        """Plan and prepare the next step while the current one runs, and queue it behind that one, so that no thread has
        to be woken between the two; None if the current one must be settled first.
        """
        if not self._pipeline.overlapped:
            return None
        now = self._clock()
        plan = self.scheduler.plan_ahead(now, self.fit.model)
        return None if plan is None else self._pipeline.begin(self._pipeline.prepare(plan), now)

    def state(self) -> dict[str, object]:
        """The scheduler's snapshot as JSON-serialisable data."""
        return snapshot(self.scheduler, self.limits, self._clock()) | {"last_steps": list(self.last_steps)}

    def _learn(self, plan: Plan, seconds: float) -> None:
        """Fit the step-time model on steps without drafts and copies: thousands of drafts would bias the prefill terms."""
        cost, model = self.scheduler.speculation.cost, self.fit.model
        if model.steps >= PERFMODEL.limit.least_model_steps and plan.draft_tokens:
            cost.draft_step(plan.draft_tokens, plan.draft_context, seconds, model.predict(plan.work))
        elif model.steps >= PERFMODEL.limit.least_model_steps and not plan.work.prefill_tokens:
            cost.plain_step(seconds, model.predict(plan.work))
        if not plan.draft_tokens and not plan.copies:
            self.fit.observe(plan.work, seconds)
