"""The engine's inside as messages: limits in force, and the snapshot behind `GET /state`."""

from sluice_engine import ipc
from sluice_engine.admission import Limits
from sluice_engine.scheduler import Scheduler


def limits_message(limits: Limits, now: float) -> ipc.Limits:
    """The limits in force as they cross the socket."""
    bounds = limits.bounds
    return ipc.Limits(
        concurrency=limits.concurrency,
        concurrency_min=bounds.concurrency_min,
        concurrency_max=bounds.concurrency_max,
        max_queue=bounds.max_queue,
        max_batched_tokens=bounds.max_batched_tokens,
        kv_watermark=bounds.kv_watermark,
        itl_target=bounds.itl_target,
        ttft_target=bounds.ttft_target,
        ttl=limits.ttl(now),
        reason=limits.reason,
    )


def snapshot(scheduler: Scheduler, limits: Limits, now: float) -> dict[str, object]:
    """Requests, blocks by owner and limits. No token ids: a prompt is nobody else's business."""
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
        "limits": {
            "concurrency": limits.concurrency,
            "concurrency_min": limits.bounds.concurrency_min,
            "concurrency_max": limits.bounds.concurrency_max,
            "max_queue": limits.bounds.max_queue,
            "max_batched_tokens": limits.bounds.max_batched_tokens,
            "kv_watermark": limits.bounds.kv_watermark,
            "ttl": limits.ttl(now),
            "reason": limits.reason,
        },
        "preemptions": scheduler.preemptions,
    }
