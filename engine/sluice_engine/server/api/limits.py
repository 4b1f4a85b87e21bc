"""Validates `/limits`: the bounds and targets that the operator sets. The engine applies them between two steps.

Each patch states how long it holds (`ttl_seconds`), so that tightened bounds expire if the client that set them fails.
"""

from typing import Any, Final

from sluice import contract
from sluice_engine import messages
from sluice_engine.server.api.fields import Object, integer, invalid, number, only
from sluice_engine.server.errors import BadRequest

MAX_TTL_SECONDS: Final = 86400.0
RENEWED_SECONDS: Final = 2.0  # a TTL that is lower by less than this was just set
MAX_COUNT: Final = 10**6
NOTICE: Final = frozenset({"retry_after_seconds", "ttl_seconds"})  # notice of a missing replica; sets no limit


def parse_patch(
    body: Object, current: messages.Limits, max_num_seqs: int, max_batched_tokens: int
) -> messages.LimitsPatch:
    """Parses the body of `PATCH /limits`. A bound above the engine's buffer sizes is lowered to them.

    Raises BadRequest.
    """
    only(body, frozenset(contract.LIMIT_FIELDS))
    if any(value is None for value in body.values()):
        raise invalid(next(name for name, value in body.items() if value is None), "must not be null")
    if body and "ttl_seconds" not in body:
        raise invalid("ttl_seconds", "is required with any other limit: say for how long it holds")
    low, high = _bounds(body, current, max_num_seqs)
    tokens = integer(body, "max_batched_tokens", 1, MAX_COUNT)
    return messages.LimitsPatch(
        concurrency_min=low,
        concurrency_max=high,
        max_queue=integer(body, "max_queue", 0, MAX_COUNT),
        max_batched_tokens=None if tokens is None else min(tokens, max_batched_tokens),
        kv_watermark=_positive(body, "kv_watermark", 1.0),
        itl_target=_milliseconds(body, "itl_target_ms"),
        ttft_target=_milliseconds(body, "ttft_target_ms"),
        ttl=_positive(body, "ttl_seconds", MAX_TTL_SECONDS),
    )


def parse_targets(body: object, started: messages.Limits, max_num_seqs: int) -> messages.Targets:
    """Parses the content of a targets file (`contract.TARGET_FIELDS`). Absent fields keep the engine's start values.

    A bound above the engine's buffer sizes is lowered to them. Raises BadRequest.
    """
    if not isinstance(body, dict):
        raise BadRequest("The file must hold a JSON object.", code="invalid_value")
    only(body, frozenset(contract.TARGET_FIELDS))
    if any(value is None for value in body.values()):
        raise invalid(next(name for name, value in body.items() if value is None), "must not be null")
    low, high = _bounds(body, started, max_num_seqs)
    return messages.Targets(
        concurrency_min=low or started.concurrency_min,
        concurrency_max=high or started.concurrency_max,
        itl_target=_milliseconds(body, "itl_target_ms") or started.itl_target,
        ttft_target=_milliseconds(body, "ttft_target_ms") or started.ttft_target,
    )


def parse_notice(body: Object) -> tuple[float, float] | None:
    """Returns (seconds until a missing replica should serve, seconds for which this notice holds), or None without a
    notice.

    `body` must have passed `parse_patch`. Raises BadRequest.
    """
    if "retry_after_seconds" not in body:
        return None
    seconds = number(body, "retry_after_seconds", 0.0, MAX_TTL_SECONDS, 0.0)
    return seconds, number(body, "ttl_seconds", 0.0, MAX_TTL_SECONDS, 0.0, above=True)


def applied(patch: messages.LimitsPatch, current: messages.Limits) -> bool:
    """Whether the limits in force match the patch."""
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


def as_json(limits: messages.Limits, retry_after: float | None = None) -> dict[str, Any]:
    """Returns the limits in force: the fields of the patch, the current concurrency and the reason that limits it.

    `retry_after` is the number of seconds until a missing replica should serve.
    """
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


def _bounds(body: Object, current: messages.Limits, max_num_seqs: int) -> tuple[int | None, int | None]:
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
