"""What people are told: Events for what moved. The status is the truth, an Event only points at it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sluice_operator.conditions import Facts
from sluice_operator.decide.explain import OTHER_WRITER, REFUSING
from sluice_operator.decide.values import Reason

REPEAT_SECONDS: Final = 600.0
_MAX_TOLD: Final = 100
_BY_REASON: Final = frozenset({"LimitsMoved", "RequestsRefused"})  # their sentences are full of numbers
_FINE: Final = frozenset({"Starting", "Paused", "NoReplicas", "Asleep", "Serving"})


@dataclass(frozen=True, slots=True)
class Note:
    """One Event to be."""

    reason: str
    message: str
    warning: bool = False


def notes(facts: Facts, conditions: Iterable[Mapping[str, Any]], reasons: Iterable[Reason] = ()) -> tuple[Note, ...]:
    """Everything worth telling after one pass, in the order in which it happened. `reasons` are the decisions that the
    status has just recorded: their sentences are the Events'."""
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
                "scaling.minReplicas is 0, but no front door holds requests here, so nobody could wake the model: "
                "one replica stays.",
            )
        )
    return tuple(said)


def _of_decision(reason: Reason) -> Note:
    if reason.binding == REFUSING:
        return Note("RequestsRefused", reason.sentence, warning=True)
    if reason.dial == "admission":
        return Note("LimitsMoved", reason.sentence)
    if reason.binding == OTHER_WRITER:
        return Note(OTHER_WRITER, reason.sentence, warning=True)
    if reason.advised:
        return Note("ScalingAdvised", reason.sentence)
    return Note("ScaledUp" if reason.after > reason.before else "ScaledDown", reason.sentence)


def _of_condition(entry: Mapping[str, Any], facts: Facts) -> Note | None:
    """Only what a person should look at, and only when it turned."""
    kind, reason = str(entry["type"]), str(entry["reason"])
    before = facts.previous.get(kind, {})
    if (before.get("status"), before.get("reason")) == (entry["status"], reason):
        return None
    telling = kind == "Ready" or reason in ("RolloutStalled", OTHER_WRITER, "MetricsStale", "InvalidSpec", "Conflict")
    if not telling:
        return None
    warning = reason == OTHER_WRITER or (entry["status"] == "False" and reason not in _FINE)
    return Note(reason, str(entry["message"]), warning=warning)


def fresh(
    said: Iterable[Note], told: Mapping[tuple[str, str], float], now: float
) -> tuple[tuple[Note, ...], dict[tuple[str, str], float]]:
    """The notes not told within REPEAT_SECONDS, and the memory that has them now; bounded.

    Moving limits and refused requests are one story however the numbers change: they repeat by reason alone.
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
