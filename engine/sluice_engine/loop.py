"""The engine without its socket: submit, step, read what came out. `core.py` wraps it; tests and benches drive it.

One step: plan → run → settle, synchronous. What happens between steps (submit, cancel, limits) takes effect at the
next one. Everything here runs on one thread.
"""

import dataclasses
import gc
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable

import torch

from sluice_engine import ipc
from sluice_engine.admission import Bounds, Limits
from sluice_engine.model.errors import InsufficientMemory
from sluice_engine.model.kv import blocks_that_fit
from sluice_engine.model.load import LoadedModel, load_model
from sluice_engine.model.resources import memory_left, processors
from sluice_engine.options import EngineOptions
from sluice_engine.report import limits_message, snapshot
from sluice_engine.request import Request, Sampling
from sluice_engine.runner import NOTHING, Runner, StepResult
from sluice_engine.scheduler import Outcome, Plan, Scheduler, SchedulerConfig
from sluice_engine.steptime import StepTimeFit
from sluice_engine.warm import warm_up
from sluice_engine.whole_runner import WholeRunner
from sluice_engine.window import LoadWindow
from sluice_law.limit import TRUSTED_STEPS
from sluice_law.steptime import StepTimeModel, StepWork

_log = logging.getLogger(__name__)
Progress = Callable[[ipc.Loading], None]


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
        self.load_seconds: dict[str, float] = {}
        torch.set_num_threads(options.threads or processors())
        begun = clock()
        on_progress(ipc.Loading("load", 0.0, 0.0))
        self.model: LoadedModel = load_model(options)
        self.load_seconds["load"] = clock() - begun
        on_progress(ipc.Loading("load", 1.0, self.load_seconds["load"]))
        begun = clock()
        on_progress(ipc.Loading("warm", 0.0, 0.0))
        blocks = blocks_that_fit(options, self.model.kv_shape, _longest_kept(self.model, options), memory_left())
        self._config = SchedulerConfig(
            num_blocks=blocks,
            block_size=options.block_size,
            max_num_seqs=options.max_num_seqs,
            max_model_length=self.model.max_model_length,
            window=self.model.window,
            policy=options.policy,
            speculation=options.speculation,
        )
        self.runner = _runner(self.model, self._config)
        warm_up(self.runner, self._config, options.max_batched_tokens, self.model.vocab_size)
        self.load_seconds["warm"] = clock() - begun
        on_progress(ipc.Loading("warm", 1.0, self.load_seconds["warm"]))
        self.limits = Limits(_bounds(options))
        self.scheduler = Scheduler(self._config, self.limits)
        self.fit = StepTimeFit()
        self.window = LoadWindow()
        self.last_steps: deque[dict[str, object]] = deque(maxlen=32)
        self._departed: list[ipc.Delta] = []
        self._moved = False
        self._preemptions = self._drafted = self._accepted = 0
        self._last_end: float | None = None
        gc.collect()
        gc.freeze()

    @property
    def ready(self) -> ipc.Ready:
        """What the HTTP process is told when the engine serves."""
        return ipc.Ready(
            dtype=str(self.model.dtype).removeprefix("torch."),
            device=str(self.model.device),
            block_size=self._config.block_size,
            num_blocks=self._config.num_blocks,
            max_model_length=self.model.max_model_length,
            vocab_size=self.model.vocab_size,
            task=self.model.task,
            vector_size=0 if self.model.pooled is None else self.model.pooled.size,
            paced=self.options.pace is not None,
            load_seconds=self.load_seconds,
        )

    @property
    def has_work(self) -> bool:
        """Whether a step would compute something or a report is due."""
        return bool(self.scheduler.requests or self._departed or self._moved)

    def submit(self, message: ipc.Submit | ipc.Encode) -> ipc.Rejected | None:
        """Queue a request. A refusal comes back; a request that can never run ends with an error in the next report."""
        samples = message.samples if isinstance(message, ipc.Submit) else ()
        try:
            request = self._request(message)
            siblings = [
                request.sibling(name, dataclasses.replace(request.sampling, seed=_seed(seed))) for name, seed in samples
            ]
            refusal = self.scheduler.submit(request, siblings)
        except Exception as error:  # noqa: BLE001 - a request can fail, the loop cannot
            names = (message.request_id, *(name for name, _ in samples))
            self._departed += [ipc.Delta(name, (), "error", str(error)) for name in names]
            return None
        if refusal is None:
            return None
        return ipc.Rejected(message.request_id, refusal.reason, refusal.retry_after, refusal.message)

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
        """One step and its report; a report without a step where only limits moved or a request left; else None."""
        self.tick()
        now = self._clock()
        plan = self.scheduler.plan(now, self.fit.model)
        # While work is at hand a step begins where the last one ended, so that what lies between counts as well.
        begun = now if self._last_end is None else self._last_end
        if plan is None:
            self._last_end = None
            return self._report(None, [], now, 0.0) if self._departed or self._moved else None
        result = self.runner.run(plan)
        self._hold_pace(plan.whole_work, begun)
        ended = self._clock()
        outcomes = self.scheduler.settle(plan, result.sampled, ended, result.errors, result.accepted)
        if self.scheduler.tainted:
            self.runner.scrub(self.scheduler.tainted)
            self.scheduler.tainted.clear()
        self._last_end = ended if self.scheduler.requests else None
        self._learn(plan, ended - begun)
        self.window.record(plan.work, [gap for outcome in outcomes for gap in outcome.gaps], ended)
        return self._report(plan, outcomes, ended, ended - begun, result)

    def state(self) -> dict[str, object]:
        """The scheduler's snapshot as JSON-able data."""
        state = snapshot(self.scheduler, self.limits, self._clock())
        state["last_steps"] = list(self.last_steps)
        return state

    def _request(self, message: ipc.Submit | ipc.Encode) -> Request:
        tokens = message.token_ids if isinstance(message, ipc.Encode) else message.prompt_token_ids
        if any(not 0 <= token < self.model.vocab_size for token in tokens):
            raise ValueError(f"a token id of the prompt lies outside the vocabulary of {self.model.vocab_size}")
        if isinstance(message, ipc.Encode) != (self.model.pooled is not None):
            raise ValueError(f"this model is served to {self.model.task}, which the request does not ask for")
        return _whole_request(message) if isinstance(message, ipc.Encode) else self._generating_request(message)

    def _generating_request(self, message: ipc.Submit) -> Request:
        params = message.params
        stops = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            stops |= self.model.eos_ids
        return Request(
            request_id=message.request_id,
            known=list(message.prompt_token_ids),
            max_tokens=params.max_tokens,
            arrived_at=message.arrived_at,
            stop_ids=stops,
            sampling=_sampling(params, stops, len(message.prompt_token_ids)),
            priority=message.priority,
            tenant=message.tenant,
            ttft_target=message.ttft_target,
            itl_target=message.itl_target,
        )

    def _learn(self, plan: Plan, seconds: float) -> None:
        """The fit sees plain steps only: thousands of steps with drafts must not say what a prompt's tokens take."""
        if not plan.draft_tokens:
            self.fit.observe(plan.work, seconds)
        elif self.fit.model.steps >= TRUSTED_STEPS:
            self.scheduler.speculation.observe(plan.draft_tokens, seconds, self.fit.model.predict(plan.whole_work))

    def _hold_pace(self, work: StepWork, begun: float) -> None:
        pace: StepTimeModel | None = self.options.pace
        if pace is not None:
            left = begun + pace.predict(work) - self._clock()
            if left > 0:
                self._sleep(left)

    def _report(
        self,
        plan: Plan | None,
        outcomes: list[Outcome],
        ended: float,
        seconds: float,
        result: StepResult = NOTHING,
    ) -> ipc.StepReport:
        deltas = (*self._departed, *(_delta(outcome, result) for outcome in outcomes))
        self._departed.clear()
        self._moved = False
        work = plan.work if plan else StepWork()
        scheduler, model = self.scheduler, self.fit.model
        drafted, accepted = scheduler.speculation.drafted, scheduler.speculation.accepted
        if plan is not None:
            self.last_steps.append(
                {
                    "step": plan.step,
                    "seconds": round(seconds, 6),
                    "prefill_tokens": work.prefill_tokens,
                    "sequences": work.sequences,
                    "kv_tokens": work.kv_tokens,
                    "draft_tokens": plan.draft_tokens,
                    "preempted": plan.preempted,
                }
            )
        report = ipc.StepReport(
            deltas=deltas,
            ended_at=ended,
            seconds=seconds,
            prefill_tokens=work.prefill_tokens,
            prefill_context=work.prefill_context,
            sequences=work.sequences,
            kv_tokens=work.kv_tokens,
            generated_tokens=sum(len(outcome.token_ids) for outcome in outcomes),
            prompt_tokens=plan.prompt_tokens if plan else 0,
            cached_prompt_tokens=plan.cached_prompt_tokens if plan else 0,
            preemptions=scheduler.preemptions - self._preemptions,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            tokens_in_flight=scheduler.tokens_in_flight,
            blocks_held=scheduler.pool.held,
            blocks_cached=scheduler.pool.cached,
            blocks_free=scheduler.pool.free,
            limits=limits_message(self.limits, ended),
            model=(model.base, model.prefill_token, model.prefill_context, model.sequence, model.kv_token),
            model_error=model.error_ratio,
            model_steps=model.steps,
            draft_tokens=drafted - self._drafted,
            accepted_draft_tokens=accepted - self._accepted,
        )
        self._preemptions = scheduler.preemptions
        self._drafted, self._accepted = drafted, accepted
        return report


def _longest_kept(model: LoadedModel, options: EngineOptions) -> int:
    """Tokens whose keys and values one request holds at most."""
    if model.window is None:
        return model.max_model_length
    return min(model.max_model_length, model.window + options.max_batched_tokens + 2 * options.block_size)


def _runner(model: LoadedModel, config: SchedulerConfig) -> Runner | WholeRunner:
    if model.pooled is not None:
        return WholeRunner(model.pooled, model.vocab_size, model.device)
    try:
        return Runner(
            model, num_blocks=config.num_blocks, block_size=config.block_size, max_num_seqs=config.max_num_seqs
        )
    except (MemoryError, RuntimeError) as error:  # torch reports a failed allocation as RuntimeError
        size = config.num_blocks * model.kv_shape.block_bytes(config.block_size)
        raise InsufficientMemory(
            f"A KV pool of {size} bytes could not be set aside: {error}. Give the engine more memory, or a smaller "
            f"pool with --kv-size."
        ) from error


def _bounds(options: EngineOptions) -> Bounds:
    return Bounds(
        concurrency_min=options.concurrency_min,
        concurrency_max=min(options.concurrency_max, options.max_num_seqs),
        max_queue=options.max_queue,
        max_batched_tokens=options.max_batched_tokens,
        kv_watermark=options.kv_watermark,
        itl_target=options.itl_target,
        ttft_target=options.ttft_target,
    )


def _sampling(params: ipc.SamplingParams, stops: frozenset[int], prompt_length: int) -> Sampling:
    waits = params.min_tokens > 0 and bool(stops)
    return Sampling(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        seed=_seed(params.seed),
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias=params.logit_bias,
        barred=tuple(sorted(stops)) if waits else (),
        stops_from=prompt_length + params.min_tokens if waits else 0,
        logprobs=params.logprobs,
    )


def _whole_request(message: ipc.Encode) -> Request:
    return Request(
        request_id=message.request_id,
        known=list(message.token_ids),
        max_tokens=0,
        arrived_at=message.arrived_at,
        priority=message.priority,
        tenant=message.tenant,
        ttft_target=message.ttft_target,
        whole=True,
        token_types=message.token_types,
    )


def _seed(given: int | None) -> int:
    return secrets.randbits(64) if given is None else given


def _delta(outcome: Outcome, result: StepResult) -> ipc.Delta:
    return ipc.Delta(
        request_id=outcome.request_id,
        token_ids=outcome.token_ids,
        finish=outcome.finish,
        error=outcome.error,
        cached_tokens=outcome.cached_tokens if outcome.first else 0,
        queue_seconds=outcome.queue_seconds if outcome.first else 0.0,
        logprobs=result.logprobs.get(outcome.request_id, ())[: len(outcome.token_ids)],
        vector=result.vectors.get(outcome.request_id, b""),
    )
