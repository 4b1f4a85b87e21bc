"""Derives Events from the changes of one pass, by pure functions. The status is authoritative; Events only refer to
it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sluice_operator.autoscaler.explain.admission import REJECTING
from sluice_operator.autoscaler.explain.replicas import OTHER_WRITER
from sluice_operator.autoscaler.values import Reason
from sluice_operator.status.conditions import SCHEDULE_IGNORED, Facts

REPEAT_SECONDS: Final = 600.0
_MAX_TOLD: Final = 100
_BY_REASON: Final = frozenset({"LimitsMoved", "RequestsRefused"})  # their messages contain changing numbers
_TELLING: Final = frozenset(
    {"RolloutStalled", OTHER_WRITER, "MetricsStale", "InvalidSpec", "Conflict", SCHEDULE_IGNORED}
)
_FINE: Final = frozenset({"Starting", "Paused", "NoReplicas", "Asleep", "Serving", "RollingOut"})


@dataclass(frozen=True, slots=True)
class Note:
    """One Event to publish."""

    reason: str
    message: str
    warning: bool = False


def notes(facts: Facts, conditions: Iterable[Mapping[str, Any]], reasons: Iterable[Reason] = ()) -> tuple[Note, ...]:
    """Return the Events of one pass, in order of occurrence.

    reasons: the decisions that the status has just recorded; their messages become Event messages.
    """
    said = [_of_decision(reason) for reason in reasons]
    said += [note for entry in conditions if (note := _of_condition(entry, facts)) is not None]
    if facts.spec is not None and facts.spec.scaling.mode in ("Auto", "Advise") and facts.spec.replicas != 1:
        mode = facts.spec.scaling.mode
        said.append(
            Note(
                "ReplicasIgnored",
                f"spec.replicas is {facts.spec.replicas} and is not read in mode {mode}: "
                "set scaling.minReplicas and maxReplicas, or scaling.mode External.",
            )
        )
    if facts.spec is not None and facts.spec.scaling.min_replicas == 0 and facts.fleet.held is None:
        said.append(
            Note(
                "ZeroNeedsFrontDoor",
                "scaling.minReplicas is 0, but no gateway holds requests here, so no request could start a replica: "
                "one replica stays.",
            )
        )
    return tuple(said)


def _of_decision(reason: Reason) -> Note:
    if reason.binding == REJECTING:
        return Note("RequestsRefused", reason.sentence, warning=True)
    if reason.dial == "admission":
        return Note("LimitsMoved", reason.sentence)
    if reason.binding == OTHER_WRITER:
        return Note(OTHER_WRITER, reason.sentence, warning=True)
    if reason.advised:
        return Note("ScalingAdvised", reason.sentence)
    return Note("ScaledUp" if reason.after > reason.before else "ScaledDown", reason.sentence)


def _of_condition(entry: Mapping[str, Any], facts: Facts) -> Note | None:
    """Return an Event for a changed condition that needs a user's attention, else None."""
    kind, reason = str(entry["type"]), str(entry["reason"])
    before = facts.previous.get(kind, {})
    if (before.get("status"), before.get("reason")) == (entry["status"], reason):
        return None
    telling = kind == "Ready" or reason in _TELLING
    if not telling:
        return None
    warning = reason in (OTHER_WRITER, SCHEDULE_IGNORED) or (entry["status"] == "False" and reason not in _FINE)
    return Note(reason, str(entry["message"]), warning=warning)


def fresh(
    said: Iterable[Note], told: Mapping[tuple[str, str], float], now: float
) -> tuple[tuple[Note, ...], dict[tuple[str, str], float]]:
    """Return the notes not published within REPEAT_SECONDS, and the updated publication times (at most _MAX_TOLD).

    `now` and the times in `told` are in seconds. Limit changes and rejections are compared by reason alone, because the
    numbers in their messages change.
    """
    kept = {what: when for what, when in told.items() if now - when < REPEAT_SECONDS}
    out = []
    for note in said:
        what = (note.reason, "" if note.reason in _BY_REASON else note.message)
        if what not in kept:
            kept[what] = now
            out.append(note)
    newest = sorted(kept.items(), key=lambda item: item[1])[-_MAX_TOLD:]
    return tuple(out), dict(newest)
