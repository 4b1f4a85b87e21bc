"""The engine without its socket: submit, step, read what came out. `core.py` wraps it; tests and benches drive it.

One step: plan → run → settle. Where steps overlap, the next one is planned and prepared while one runs, begins as soon
as that has ended, and runs while it is settled and reported. What happens between two calls (submit, cancel, limits)
takes effect with the next plan. All but the model runs on the caller's thread.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable

from sluice_engine import ipc
from sluice_engine.admission import Limits
from sluice_engine.options import EngineOptions
from sluice_engine.pipeline import Execute, Flight, Pipeline
from sluice_engine.report import Reporter, snapshot
from sluice_engine.scheduler import Plan, Scheduler
from sluice_engine.scheduler.foresight import planning_time
from sluice_engine.start import Progress, Started, bounds_of
from sluice_engine.steptime import StepTimeFit
from sluice_engine.translate import delta_of, request_of, seed_of
from sluice_engine.window import LoadWindow
from sluice_law.limit import TRUSTED_STEPS
from sluice_law.steptime import StepTimeModel

_log = logging.getLogger(__name__)


class EngineLoop:
    """A loaded model, its scheduler and its limits. Raises a `model.errors.StartError` when it cannot start."""

    def __init__(
        self,
        options: EngineOptions,
        *,
        on_progress: Progress = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self.options = options
        self._started = Started(options, on_progress, clock)
        self.model, self.runner = self._started.model, self._started.runner
        self._pipeline = Pipeline(self.runner, options.overlap)
        self.limits = Limits(bounds_of(options))
        self.scheduler = Scheduler(self._started.config, self.limits)
        self.fit = StepTimeFit()
        self.window = LoadWindow()
        self._reporter = Reporter(self.scheduler, self.limits)
        self.last_steps = self._reporter.last_steps
        self._departed: list[ipc.Delta] = []
        self._moved = False
        self._flight: Flight | None = None  # begun and not settled
        self._next: tuple[Plan, Execute] | None = None  # prepared and not begun
        self._last_end: float | None = None

    @property
    def ready(self) -> ipc.Ready:
        """What the HTTP process is told when the engine serves."""
        return self._started.ready(paced=self.options.pace is not None)

    @property
    def spare(self) -> float:
        """Seconds that the step under way is predicted to take still, less what planning the next one needs: until
        then it is better to wait for requests that could be part of it. 0 where nothing is known or under way."""
        flight = self._flight
        if flight is None or not self._pipeline.overlapped:
            return 0.0
        return max(0.0, planning_time(flight.plan, flight.begun, self.fit.model) - self._clock())

    @property
    def has_work(self) -> bool:
        """Whether a step would compute something or a report is due."""
        return bool(self.scheduler.requests or self._departed or self._moved or self._flight)

    def submit(self, message: ipc.Submit | ipc.Encode) -> ipc.Rejected | None:
        """Queue a request. A refusal comes back, of it or of one that waited and makes way; a request that can never run
        ends with an error in the next report."""
        samples = message.samples if isinstance(message, ipc.Submit) else ()
        try:
            request = request_of(message, self.model)
            siblings = [
                request.sibling(name, dataclasses.replace(request.sampling, seed=seed_of(seed)))
                for name, seed in samples
            ]
            refusal = self.scheduler.submit(request, siblings)
        except Exception as error:  # noqa: BLE001 - a request can fail, the loop cannot
            names = (message.request_id, *(name for name, _ in samples))
            self._departed += [ipc.Delta(name, (), "error", str(error)) for name in names]
            return None
        if refusal is None:
            return None
        return ipc.Rejected(refusal.request_id, refusal.reason, refusal.retry_after, refusal.message)

    def cancel(self, message: ipc.Cancel) -> None:
        """End a request now and free its blocks; unknown or ended ids are ignored."""
        if self.scheduler.cancel(message.request_id):
            self._departed.append(ipc.Delta(message.request_id, (), message.reason))

    def patch(self, message: ipc.LimitsPatch) -> None:
        """Move bounds and targets from the next step on."""
        self.limits.patch(
            {
                "concurrency_min": message.concurrency_min,
                "concurrency_max": message.concurrency_max,
                "max_queue": message.max_queue,
                "max_batched_tokens": message.max_batched_tokens,
                "kv_watermark": message.kv_watermark,
                "itl_target": message.itl_target,
                "ttft_target": message.ttft_target,
            },
            message.ttl,
            self._clock(),
        )
        self._moved = True

    def drain(self) -> None:
        """Refuse what comes from now on; finish what is here."""
        self.scheduler.draining = True

    def tick(self) -> None:
        """The fast loop, at most once a second: expire a patch, move the concurrency inside its bounds."""
        now = self._clock()
        self._moved |= self.limits.expire(now)
        if self.limits.due(now):
            # Where nothing is generated nobody waits for a next token: no measurement moves the limit, its bounds do.
            model = None if self.model.pooled is not None else self.fit.model
            self._moved |= self.limits.tick(now, model, self.window.load(self.scheduler, now))

    def step(self) -> ipc.StepReport | None:
        """One step and its report; a report without a step where only limits moved or a request left; else None.

        Where steps overlap, the next one is under way when this returns."""
        self.tick()
        if self._flight is None:
            self._flight = self._begin()
        if self._flight is None:
            self._last_end = None
            return self._report(None, (), self._clock(), 0.0) if self._departed or self._moved else None
        if self._next is None:
            self._next = self._prepare_ahead()
        return self._land(self._flight)

    def land(self) -> list[ipc.StepReport]:
        """Wait for the step under way, and for the one that was planned behind it if the wait for the first was
        interrupted: what a plan promised to the prefix cache must be computed. Plans no other."""
        reports: list[ipc.StepReport] = []
        while self._flight is not None:
            reports.append(self._land(self._flight))
        return reports

    def abandon(self, names: Iterable[str]) -> None:
        """End these requests and whatever step is under way for them."""
        for name in names:
            self.cancel(ipc.Cancel(name, "abort"))
        self.land()

    def _land(self, flight: Flight) -> ipc.StepReport:
        result = flight.result()  # interrupted here, it can be asked again
        self._hold_pace(flight)
        ended = self._clock()
        prepared, self._next = self._next, None
        self._flight = None if prepared is None else self._pipeline.begin(prepared, ended)
        plan = flight.plan if result.cut is None else flight.plan.shortened(result.cut)
        seconds = ended - flight.begun
        outcomes = self.scheduler.settle(plan, result.sampled, ended, result.errors, result.accepted)
        self._last_end = ended if self.scheduler.requests else None
        self._learn(plan, seconds)
        self.window.record(plan.work, [gap for outcome in outcomes for gap in outcome.gaps], ended)
        return self._report(plan, [delta_of(outcome, result) for outcome in outcomes], ended, seconds)

    def _report(self, plan: Plan | None, said: Iterable[ipc.Delta], ended: float, seconds: float) -> ipc.StepReport:
        deltas = (*self._departed, *said)
        self._departed.clear()
        self._moved = False
        return self._reporter.report(plan, deltas, ended, seconds, self.fit.model)

    def _begin(self) -> Flight | None:
        """Plan and begin a step while none is under way."""
        now = self._clock()
        plan = self.scheduler.plan(now, self.fit.model)
        if plan is None:
            return None
        # While work is at hand a step begins where the last one ended, so that what lies between counts as well.
        return self._pipeline.begin(self._pipeline.prepare(plan), now if self._last_end is None else self._last_end)

    def _prepare_ahead(self) -> tuple[Plan, Execute] | None:
        """The next step's tensors, while this one runs; None where it has to be settled first."""
        if not self._pipeline.overlapped:
            return None
        plan = self.scheduler.plan_ahead(self._clock(), self.fit.model)
        return None if plan is None else self._pipeline.prepare(plan)

    def state(self) -> dict[str, object]:
        """The scheduler's snapshot as JSON-able data."""
        return snapshot(self.scheduler, self.limits, self._clock()) | {"last_steps": list(self.last_steps)}

    def _learn(self, plan: Plan, seconds: float) -> None:
        """The fit sees plain steps only: thousands of steps with drafts must not say what a prompt's tokens take."""
        cost, model = self.scheduler.speculation.cost, self.fit.model
        if model.steps >= TRUSTED_STEPS and plan.draft_tokens:
            cost.draft_step(plan.draft_tokens, plan.draft_context, seconds, model.predict(plan.work))
        elif model.steps >= TRUSTED_STEPS and not plan.work.prefill_tokens:
            cost.plain_step(seconds, model.predict(plan.work))
        if not plan.draft_tokens and not plan.copies:
            self.fit.observe(plan.work, seconds)

    def _hold_pace(self, flight: Flight) -> None:
        pace: StepTimeModel | None = self.options.pace
        if pace is not None:
            left = flight.begun + pace.predict(flight.plan.whole_work) - self._clock()
            if left > 0:
                self._sleep(left)
