"""The list `status.decisions`: its format and its bound.

An operator reads it back only to continue the list: the newest recorded count tells it whether a change is recorded.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sluice_operator.autoscaler.explain.admission import REJECTING
from sluice_operator.autoscaler.values import Reason
from sluice_operator.status.decimal_text import decimal_text

MAX_DECISIONS: Final = 10


def record(reason: Reason, now: str) -> dict[str, Any]:
    """Return one decision in the format of `status.decisions`."""
    advised = {"advised": True} if reason.advised else {}
    return advised | {
        "time": now,
        "kind": reason.dial,
        "from": reason.before,
        "to": reason.after,
        "reason": reason.binding,
        "message": reason.sentence[:1024],
        "numbers": {name: decimal_text(value, 6) for name, value in reason.numbers},
    }


def append(listed: Iterable[Mapping[str, Any]], records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the last `MAX_DECISIONS` decisions, newest last.

    Consecutive limit changes with the same reason are one entry, and so are all rejections between two replica
    decisions, so neither displaces replica decisions. The newest entry is kept whole: its numbers match its message.
    """
    kept = [dict(entry) for entry in listed]
    for entry in records:
        new = dict(entry)
        if new["reason"] == REJECTING:
            begun = max((place for place, old in enumerate(kept) if old.get("kind") == "replicas"), default=-1)
            kept = kept[: begun + 1] + [old for old in kept[begun + 1 :] if old.get("reason") != REJECTING]
        elif new["kind"] == "admission":
            place = max((place for place, old in enumerate(kept) if old.get("reason") != REJECTING), default=-1)
            last = kept[place] if place >= 0 else {}
            if (last.get("kind"), last.get("reason")) == ("admission", new["reason"]):
                kept.pop(place)
        kept.append(new)
    return kept[-MAX_DECISIONS:]


def last_replicas(status: Mapping[str, Any]) -> int | None:
    """Return the replica count of the newest recorded replica decision.

    The result is None if there is no such decision, or if it was only advised: the operator has not set the count
    since.
    """
    for entry in reversed(status.get("decisions") or ()):
        if entry.get("kind") == "replicas" and isinstance(entry.get("to"), int):
            return None if entry.get("advised") else int(entry["to"])
    return None


def last_admission_reason(listed: Iterable[Mapping[str, Any]]) -> str:
    """Return the reason of the last listed change of the limit, or "Steady"."""
    moves = [
        str(entry.get("reason"))
        for entry in listed
        if entry.get("kind") == "admission" and entry.get("from") != entry.get("to")
    ]
    return moves[-1] if moves else "Steady"
