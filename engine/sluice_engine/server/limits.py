"""`/limits`: the bounds and targets that the operator sets, checked here, applied between two steps.

Whoever sets a limit must say for how long (`ttl_seconds`): bounds that were tightened do not stay tight when the
one who tightened them is gone.
"""

from typing import Any, Final

from sluice import contract
from sluice_engine import ipc
from sluice_engine.server.fields import Object, integer, invalid, number, only

MAX_TTL_SECONDS: Final = 86400.0
RENEWED_SECONDS: Final = 2.0  # a TTL this close to the one asked for was just set
MAX_COUNT: Final = 10**6
NOTICE: Final = frozenset({"retry_after_seconds", "ttl_seconds"})  # of a missing replica; no limit


def parse_patch(body: Object, current: ipc.Limits, max_num_seqs: int, max_batched_tokens: int) -> ipc.LimitsPatch:
    """The body of `PATCH /limits` as a message. A bound above what the engine has buffers for is lowered to it.

    Raises BadRequest.
    """
    only(body, frozenset(contract.LIMIT_FIELDS))
    if any(value is None for value in body.values()):
        raise invalid(next(name for name, value in body.items() if value is None), "must not be null")
    if body and "ttl_seconds" not in body:
        raise invalid("ttl_seconds", "is required with any other limit: say for how long it holds")
    low, high = _bounds(body, current, max_num_seqs)
    tokens = integer(body, "max_batched_tokens", 1, MAX_COUNT)
    return ipc.LimitsPatch(
        concurrency_min=low,
        concurrency_max=high,
        max_queue=integer(body, "max_queue", 0, MAX_COUNT),
        max_batched_tokens=None if tokens is None else min(tokens, max_batched_tokens),
        kv_watermark=_positive(body, "kv_watermark", 1.0),
        itl_target=_milliseconds(body, "itl_target_ms"),
        ttft_target=_milliseconds(body, "ttft_target_ms"),
        ttl=_positive(body, "ttl_seconds", MAX_TTL_SECONDS),
    )


def parse_notice(body: Object) -> tuple[float, float] | None:
    """When a missing replica should serve and for how long that is to be believed, in seconds, of a body that
    `parse_patch` has taken; None where it does not say.

    Raises BadRequest.
    """
    if "retry_after_seconds" not in body:
        return None
    seconds = number(body, "retry_after_seconds", 0.0, MAX_TTL_SECONDS, 0.0)
    return seconds, number(body, "ttl_seconds", 0.0, MAX_TTL_SECONDS, 0.0, above=True)


def applied(patch: ipc.LimitsPatch, current: ipc.Limits) -> bool:
    """Whether the limits in force are those of the patch."""
    pairs = (
        (patch.concurrency_min, current.concurrency_min),
        (patch.concurrency_max, current.concurrency_max),
        (patch.max_queue, current.max_queue),
        (patch.max_batched_tokens, current.max_batched_tokens),
        (patch.kv_watermark, current.kv_watermark),
        (patch.itl_target, current.itl_target),
        (patch.ttft_target, current.ttft_target),
    )
    renewed = patch.ttl is None or (current.ttl is not None and 0 <= patch.ttl - current.ttl < RENEWED_SECONDS)
    return renewed and all(wanted is None or wanted == now for wanted, now in pairs)


def as_json(limits: ipc.Limits, retry_after: float | None = None) -> dict[str, Any]:
    """Limits in force: the fields of the patch, where the fast loop is inside them, and what binds it. `retry_after` is
    seconds until a missing replica should serve."""
    return {
        "max_concurrent": {"min": limits.concurrency_min, "max": limits.concurrency_max},
        "max_queue": limits.max_queue,
        "max_batched_tokens": limits.max_batched_tokens,
        "kv_watermark": limits.kv_watermark,
        "itl_target_ms": limits.itl_target * 1000,
        "ttft_target_ms": limits.ttft_target * 1000,
        "retry_after_seconds": retry_after or 0.0,
        "ttl_seconds": limits.ttl,
        "concurrency": limits.concurrency,
        "reason": limits.reason,
    }


def _bounds(body: Object, current: ipc.Limits, max_num_seqs: int) -> tuple[int | None, int | None]:
    given = body.get("max_concurrent")
    if given is None:
        return None, None
    if not isinstance(given, dict):
        raise invalid("max_concurrent", "must be an object with min and max")
    only(given, frozenset({"min", "max"}), "max_concurrent.")
    dotted = {f"max_concurrent.{name}": value for name, value in given.items()}
    low = integer(dotted, "max_concurrent.min", 1, MAX_COUNT)
    high = integer(dotted, "max_concurrent.max", 1, MAX_COUNT)
    low = None if low is None else min(low, max_num_seqs)
    high = None if high is None else min(high, max_num_seqs)
    if (low or current.concurrency_min) > (high or current.concurrency_max):
        raise invalid("max_concurrent", "must have min at most max")
    return low, high


def _positive(body: Object, name: str, high: float) -> float | None:
    return number(body, name, 0.0, high, 0.0, above=True) if name in body else None


def _milliseconds(body: Object, name: str) -> float | None:
    value = _positive(body, name, 1e7)
    return None if value is None else value / 1000
