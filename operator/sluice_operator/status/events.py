"""Derives Events from the changes of one pass, by pure functions. The status is authoritative; Events only refer to
it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sluice_operator.autoscaler.budget.values import BUDGET, BUDGET_INVALID
from sluice_operator.autoscaler.explain.admission import REJECTING
from sluice_operator.autoscaler.explain.replicas import OTHER_WRITER
from sluice_operator.autoscaler.values import Reason
from sluice_operator.status import canary
from sluice_operator.status.control_conditions import SCHEDULE_IGNORED
from sluice_operator.status.facts import Facts
from sluice_operator.status.revision.upgrade_condition import UPGRADING

REPEAT_SECONDS: Final = 600.0
_MAX_SENT: Final = 100
_BY_REASON: Final = frozenset({"LimitsMoved", "RequestsRefused", BUDGET})  # their messages contain changing numbers
# Reasons that are reported for conditions other than Ready.
_REPORTED: Final = frozenset(
    {
        "RolloutStalled",
        "PodsRefused",
        "Unschedulable",
        OTHER_WRITER,
        "MetricsStale",
        "InvalidSpec",
        "Conflict",
        SCHEDULE_IGNORED,
        BUDGET,
        BUDGET_INVALID,
        UPGRADING,
        "UpgradeFailed",
    }
)
_NORMAL: Final = frozenset(
    {"Starting", "Fetching", "Paused", "NoReplicas", "Asleep", "Serving", "RollingOut", UPGRADING}
)


@dataclass(frozen=True, slots=True)
class Event:
    """One Event to emit."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class SentEvents:
    """The Events of one resource that were sent within REPEAT_SECONDS, to send none twice."""

    # (reason, message) → monotonic seconds; bounded
    times: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def unsent(self, events: Iterable[Event], now: float) -> tuple[tuple[Event, ...], "SentEvents"]:
        """Return the events to send at `now`, and the state after that.

        Limit changes and rejections are compared by reason alone, because the numbers in their messages change.
        """
        times = {what: when for what, when in self.times.items() if now - when < REPEAT_SECONDS}
        found = []
        for event in events:
            what = (event.reason, "" if event.reason in _BY_REASON else event.message)
            if what not in times:
                times[what] = now
                found.append(event)
        newest = sorted(times.items(), key=lambda item: item[1])[-_MAX_SENT:]
        return tuple(found), SentEvents(dict(newest))


def events_of(
    facts: Facts, conditions: Iterable[Mapping[str, Any]], reasons: Iterable[Reason] = ()
) -> tuple[Event, ...]:
    """Return the Events of one pass, in order of occurrence.

    reasons: the decisions that the status has just recorded; their messages become Event messages.
    """
    events = [_of_decision(reason) for reason in reasons]
    changed = (_of_condition(entry, facts) for entry in conditions)
    events += dict.fromkeys(event for event in changed if event is not None)  # Ready and Progressing may say the same
    if facts.spec is not None and facts.spec.scaling.mode != "External" and facts.spec.replicas != 1:
        mode = facts.spec.scaling.mode
        step = "Scale the Deployment" if mode == "Off" else "Set spec.scaling.minReplicas and maxReplicas"
        events.append(
            Event(
                "ReplicasIgnored",
                f"The operator ignores spec.replicas ({facts.spec.replicas}) in scaling mode {mode}. "
                f"{step}, or set spec.scaling.mode to External.",
            )
        )
    if facts.spec is not None and facts.spec.scaling.min_replicas == 0 and facts.fleet.held is None:
        events.append(
            Event(
                "ZeroNeedsFrontDoor",
                "spec.scaling.minReplicas is 0, but no gateway holds requests for this model, so no request could start "
                "a replica. The operator keeps one replica.",
            )
        )
    if trial := canary.change_of(facts):
        events.append(Event(*trial))
    if facts.estimates_problem:
        events.append(Event("EstimatesNotKept", facts.estimates_problem, warning=True))
    return tuple(events)


def _of_decision(reason: Reason) -> Event:
    if reason.binding == REJECTING:
        return Event("RequestsRefused", reason.sentence, warning=True)
    if reason.dial == "admission":
        return Event("LimitsMoved", reason.sentence)
    if reason.binding == OTHER_WRITER:
        return Event(OTHER_WRITER, reason.sentence, warning=True)
    if reason.advised:
        return Event("ScalingAdvised", reason.sentence)
    return Event("ScaledUp" if reason.after > reason.before else "ScaledDown", reason.sentence)


def _of_condition(entry: Mapping[str, Any], facts: Facts) -> Event | None:
    """Return an Event for a changed condition that needs a user's attention, else None."""
    kind, reason = str(entry["type"]), str(entry["reason"])
    before = facts.previous.get(kind, {})
    if (before.get("status"), before.get("reason")) == (entry["status"], reason):
        return None
    if (kind != "Ready" and reason not in _REPORTED) or reason == canary.PROGRESSING:
        return None
    warning = reason in (OTHER_WRITER, SCHEDULE_IGNORED, BUDGET_INVALID, "UpgradeFailed") or (
        entry["status"] == "False" and reason not in _NORMAL
    )
    return Event(reason, str(entry["message"]), warning=warning)
