"""Converts engine state to messages: step reports, the limits in force, and the snapshot of `GET /state`."""

from collections import deque

from sluice_engine import messages
from sluice_engine.control.limit_controller import LimitController
from sluice_engine.scheduler import Plan, Scheduler
from sluice_perfmodel.shadow_queues import LOADS
from sluice_perfmodel.step_time import StepTimeModel, StepWork

_STATE_LIMITS = ("concurrency_min", "concurrency_max", "max_queue", "max_batched_tokens", "kv_watermark")
_LAST_STEPS = 32  # kept for `GET /state`


class StepReporter:
    """Builds the report of each step with counter deltas since the previous report, and keeps the last steps."""

    def __init__(self, scheduler: Scheduler, limits: LimitController) -> None:
        self.last_steps: deque[dict[str, object]] = deque(maxlen=_LAST_STEPS)
        self._scheduler, self._limits = scheduler, limits
        self._preemptions = self._swaps = self._drafted = self._accepted = 0
        self._shadow = messages.ShadowCounts(0, 0, (0.0,) * len(LOADS))

    @property
    def arrivals_due(self) -> bool:
        """True if the shadow queues have seen an arrival since the last report."""
        return self._scheduler.shadow.arrived != self._shadow.requests

    def report(
        self, plan: Plan | None, deltas: tuple[messages.Delta, ...], ended: float, seconds: float, model: StepTimeModel
    ) -> messages.StepReport:
        """The report of the step that ended at `ended` (seconds of the engine's clock). Without a step `plan`
        is None.
        """
        model = self._limits.published(model)
        scheduler, pool = self._scheduler, self._scheduler.pool
        work = plan.work if plan else StepWork()
        drafted, accepted = scheduler.speculation.drafted, scheduler.speculation.accepted
        if plan is not None:
            self.last_steps.append(_line(plan, seconds))
        report = messages.StepReport(
            deltas=deltas,
            ended_at=ended,
            seconds=seconds,
            prefill_tokens=work.prefill_tokens,
            prefill_context=work.prefill_context,
            sequences=work.sequences,
            kv_tokens=work.kv_tokens,
            generated_tokens=sum(len(delta.token_ids) for delta in deltas),
            prompt_tokens=plan.prompt_tokens if plan else 0,
            cached_prompt_tokens=plan.cached_prompt_tokens if plan else 0,
            preemptions=scheduler.preemptions - self._preemptions,
            swaps=scheduler.swaps - self._swaps,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            tokens_in_flight=scheduler.tokens_in_flight,
            blocks_held=pool.held,
            blocks_cached=pool.cached,
            blocks_free=pool.free,
            limits=self._limits.in_force(ended),
            model=(model.base, model.prefill_token, model.prefill_context, model.sequence, model.kv_token),
            model_error=model.error_ratio,
            model_steps=model.steps,
            draft_tokens=drafted - self._drafted,
            accepted_draft_tokens=accepted - self._accepted,
            shadow=self._shadow_counts() if self.arrivals_due else None,
        )
        self._preemptions, self._swaps = scheduler.preemptions, scheduler.swaps
        self._drafted, self._accepted = drafted, accepted
        return report

    def _shadow_counts(self) -> messages.ShadowCounts:
        """The counts since the last call."""
        queues, before = self._scheduler.shadow, self._shadow
        self._shadow = messages.ShadowCounts(queues.arrived, queues.unreachable, tuple(queues.late))
        return messages.ShadowCounts(
            queues.arrived - before.requests,
            queues.unreachable - before.unreachable,
            tuple(now - then for now, then in zip(queues.late, before.late, strict=True)),
        )


def _line(plan: Plan, seconds: float) -> dict[str, object]:
    """One step in the format of `GET /state`."""
    return {
        "step": plan.step,
        "seconds": round(seconds, 6),
        "prefill_tokens": plan.work.prefill_tokens,
        "sequences": plan.work.sequences,
        "kv_tokens": plan.work.kv_tokens,
        "draft_tokens": plan.draft_tokens,
        "preempted": plan.preempted,
    }


def snapshot(scheduler: Scheduler, limits: LimitController, now: float) -> dict[str, object]:
    """Requests, blocks by owner and limits. It contains no token ids, because prompts are confidential."""
    pool = scheduler.pool
    return {
        "draining": scheduler.draining,
        "requests": [
            {
                "id": request.request_id,
                "state": "running" if request.slot >= 0 else "waiting",
                "prompt_tokens": request.prompt_length,
                "generated_tokens": request.generated,
                "computed_tokens": request.computed,
                "cached_tokens": request.cached_tokens,
                "blocks": list(request.blocks),
                "preemptions": request.preemptions,
                "age_seconds": round(now - request.arrived_at, 3),
            }
            for request in scheduler.requests.values()
        ],
        "blocks": {"held": pool.held, "cached": pool.cached, "free": pool.free, "total": pool.num_blocks},
        "host_blocks": {
            "held": scheduler.host_blocks_held,
            "total": scheduler.config.host_blocks,
        },
        "limits": {
            "concurrency": limits.concurrency,
            **{name: getattr(limits.current, name) for name in _STATE_LIMITS},
            "ttl": limits.ttl(now),
            "reason": limits.reason,
        },
        "preemptions": scheduler.preemptions,
        "swaps": scheduler.swaps,
    }
