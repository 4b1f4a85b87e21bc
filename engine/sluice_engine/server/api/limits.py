"""Validates `/limits`: the bounds and targets that the operator sets. The engine applies them between two steps.

Each patch states how long it holds (`ttl_seconds`), so that tightened bounds expire if the client that set them fails.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from sluice import contract
from sluice_engine import messages
from sluice_engine.limits import LimitChanges, Limits, LimitsInForce
from sluice_engine.server.api.fields import Object, integer, invalid, number, only
from sluice_engine.server.errors import BadRequest

MAX_TTL_SECONDS: Final = 86400.0
RENEWED_SECONDS: Final = 2.0  # a TTL that is lower by less than this was just set
MAX_COUNT: Final = 10**6
NOTICE: Final = frozenset({"retry_after_seconds", "ttl_seconds"})  # notice of a missing replica; sets no limit


def parse_patch(body: Object, current: Limits, max_num_seqs: int, max_batched_tokens: int) -> messages.LimitsPatch:
    """Parses the body of `PATCH /limits`. A bound above the engine's buffer sizes is lowered to them.

    Raises BadRequest.
    """
    _check_fields(body, contract.LIMIT_FIELDS)
    if body and "ttl_seconds" not in body:
        raise invalid("ttl_seconds", "is required with any other limit; it states for how long the limits apply")
    changes = _concurrency_range(body, current, max_num_seqs)
    if (tokens := integer(body, "max_batched_tokens", 1, MAX_COUNT)) is not None:
        changes["max_batched_tokens"] = min(tokens, max_batched_tokens)
    if (max_queue := integer(body, "max_queue", 0, MAX_COUNT)) is not None:
        changes["max_queue"] = max_queue
    if (kv_watermark := _positive(body, "kv_watermark", 1.0)) is not None:
        changes["kv_watermark"] = kv_watermark
    changes |= _targets(body)
    return messages.LimitsPatch(changes=changes, ttl=_positive(body, "ttl_seconds", MAX_TTL_SECONDS))


def parse_targets(body: object, started: Limits, max_num_seqs: int) -> Limits:
    """Parses the content of a targets file (`contract.TARGET_FIELDS`) into base limits. Absent fields keep the engine's
    start values, and a bound above the engine's buffer sizes is lowered to them. Raises BadRequest.
    """
    if not isinstance(body, dict):
        raise BadRequest("The file must hold a JSON object.", code="invalid_value")
    _check_fields(body, contract.TARGET_FIELDS)
    return started.changed(**(_concurrency_range(body, started, max_num_seqs) | _targets(body)))


def parse_notice(body: Object) -> tuple[float, float] | None:
    """Returns (seconds until a missing replica should serve, seconds for which this notice holds), or None without a
    notice.

    `body` must have passed `parse_patch`. Raises BadRequest.
    """
    if "retry_after_seconds" not in body:
        return None
    seconds = number(body, "retry_after_seconds", 0.0, MAX_TTL_SECONDS, 0.0)
    return seconds, number(body, "ttl_seconds", 0.0, MAX_TTL_SECONDS, 0.0, above=True)


def applied(patch: messages.LimitsPatch, in_force: LimitsInForce) -> bool:
    """Whether the limits in force match the patch."""
    renewed = patch.ttl is None or (in_force.ttl is not None and 0 <= patch.ttl - in_force.ttl < RENEWED_SECONDS)
    return renewed and replace(in_force.limits, **patch.changes) == in_force.limits


def as_json(in_force: LimitsInForce, retry_after: float | None = None) -> dict[str, Any]:
    """Returns the limits in force: the fields of the patch, the current concurrency and the reason that limits it.

    `retry_after` is the number of seconds until a missing replica should serve.
    """
    limits = in_force.limits
    return {
        "max_concurrent": {"min": limits.concurrency_min, "max": limits.concurrency_max},
        "max_queue": limits.max_queue,
        "max_batched_tokens": limits.max_batched_tokens,
        "kv_watermark": limits.kv_watermark,
        "itl_target_ms": limits.itl_target * 1000,
        "ttft_target_ms": limits.ttft_target * 1000,
        "retry_after_seconds": retry_after or 0.0,
        "ttl_seconds": in_force.ttl,
        "concurrency": in_force.concurrency,
        "reason": in_force.reason,
    }


def _check_fields(body: Object, known: Iterable[str]) -> None:
    only(body, frozenset(known))
    if any(value is None for value in body.values()):
        raise invalid(next(name for name, value in body.items() if value is None), "must not be null")


def _concurrency_range(body: Object, current: Limits, max_num_seqs: int) -> LimitChanges:
    concurrency = body.get("max_concurrent")
    if concurrency is None:
        return {}
    if not isinstance(concurrency, dict):
        raise invalid("max_concurrent", "must be an object with min and max")
    only(concurrency, frozenset({"min", "max"}), "max_concurrent.")
    dotted = {f"max_concurrent.{name}": value for name, value in concurrency.items()}
    changes: LimitChanges = {}
    if (low := integer(dotted, "max_concurrent.min", 1, MAX_COUNT)) is not None:
        changes["concurrency_min"] = min(low, max_num_seqs)
    if (high := integer(dotted, "max_concurrent.max", 1, MAX_COUNT)) is not None:
        changes["concurrency_max"] = min(high, max_num_seqs)
    patched = replace(current, **changes)
    if patched.concurrency_min > patched.concurrency_max:
        raise invalid("max_concurrent", "must have min at most max")
    return changes


def _targets(body: Object) -> LimitChanges:
    changes: LimitChanges = {}
    if (itl_target := _milliseconds(body, "itl_target_ms")) is not None:
        changes["itl_target"] = itl_target
    if (ttft_target := _milliseconds(body, "ttft_target_ms")) is not None:
        changes["ttft_target"] = ttft_target
    return changes


def _positive(body: Object, name: str, high: float) -> float | None:
    return number(body, name, 0.0, high, 0.0, above=True) if name in body else None


def _milliseconds(body: Object, name: str) -> float | None:
    value = _positive(body, name, 1e7)
    return None if value is None else value / 1000
