"""Computes the new status from the previous status and the facts of one pass, as a pure function.

Counts, conditions and decisions are updated in every pass. Latency, occupancy and limits are updated only every
`status_interval`, and the status is written only if it changed: a status that changes every few seconds would wake
every watcher in the cluster.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sluice_operator.autoscaler.explain.admission import REJECTING
from sluice_operator.autoscaler.handover import restored_state
from sluice_operator.autoscaler.signals.cold_start import PHASES
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import ColdStart, ForecastStatus, Reason
from sluice_operator.cluster.client import Key
from sluice_operator.cluster.fleet import replicas_of
from sluice_operator.render import names
from sluice_operator.status.conditions import Facts, conditions, problem_of

MAX_DECISIONS: Final = 10
_MEASURED: Final = frozenset({"SLOMet", "MetricsAvailable", "AdmissionActive"})
_NUMBERS: Final = ("slo", "kvOccupancyPercent", "admission", "coldStartSeconds", "forecast")
_FORECAST: Final = (
    ("rate", "requestsPerSecond"),
    ("planned", "plannedRequestsPerSecond"),
    ("dispersion", "dispersion"),
    ("volatility", "volatility"),
    ("output_tokens", "outputTokens"),
    ("prompt_tokens", "promptTokens"),
    ("cached_tokens", "cachedPromptTokens"),
    ("confidence", "modelTrust"),
)


def build(
    key: Key,
    facts: Facts,
    previous: Mapping[str, Any],
    records: Iterable[Mapping[str, Any]],
    *,
    now: str,
    numbers_due: bool,
    starts: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the whole status.

    records: decisions to append. now: an RFC 3339 timestamp. numbers_due: update the measured numbers too. starts: the
    measured cold starts, newest last.
    """
    ready = facts.fleet.ready
    wanted = facts.decision.desired if facts.decision else replicas_of(facts.fleet.deployment)
    desired = int(previous.get("desiredReplicas", 0)) if wanted is None else wanted
    problem = problem_of(facts)
    listed = conditions(facts, now)
    if not numbers_due:
        listed = [_calm(entry, facts.previous.get(entry["type"])) for entry in listed]
    decisions = append(previous.get("decisions") or (), records)
    status: dict[str, Any] = {
        "observedGeneration": facts.generation,
        "replicas": sum(report.view.phase != "draining" for report in facts.fleet.pods),
        "readyReplicas": ready,
        "desiredReplicas": desired,
        "replicasSummary": f"{ready}/{desired}",
        "selector": names.selector_text(key.name),
        "url": f"{names.url(key.namespace, key.name)}/v1",
        "reason": problem.reason if problem else listed[0]["reason"],
        "decisions": decisions,
        "conditions": listed,
        # Always set, or the schema's default would replace it; updated when due, because large fleets start pods often.
        "coldStarts": list(starts if numbers_due else previous.get("coldStarts") or ()),
    }
    carried = {name: previous[name] for name in _NUMBERS if name in previous}
    return status | carried | (numbers(facts, decisions) if numbers_due or not carried else {})


def _calm(entry: dict[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Keep the previous message of a measured condition with the same verdict while the numbers are not due."""
    if before is None or entry["type"] not in _MEASURED:
        return entry
    same = all(before.get(name) == entry[name] for name in ("status", "reason", "observedGeneration"))
    return dict(before) if same else entry


def numbers(facts: Facts, listed: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the measured part of the status; `listed` are its decisions.

    Unknown numbers are omitted, so that the previous values stay.
    """
    found: dict[str, Any] = {}
    decision = facts.decision
    if decision is not None:
        slo = {
            "ttftMilliseconds": _rounded(decision.ttft, 1000),
            "itlMilliseconds": _rounded(decision.itl, 1000, 1),
            "attainmentPercent": _rounded(decision.attainment, 100, 1),
        }
        if known := {name: value for name, value in slo.items() if value is not None}:
            found["slo"] = known
        if decision.kv_occupancy is not None:
            found["kvOccupancyPercent"] = _rounded(decision.kv_occupancy, 100, 1)
        if decision.concurrency is not None:
            found["admission"] = {"concurrency": decision.concurrency, "reason": _binding(listed)}
        if decision.cold_start is not None:
            found["coldStartSeconds"] = _phases(decision.cold_start)
        if decision.forecast is not None:
            found["forecast"] = _forecast(decision.forecast)
    return found


def _phases(start: ColdStart) -> dict[str, float]:
    return {phase: round(getattr(start, phase), 1) for phase in PHASES}


def _forecast(forecast: ForecastStatus) -> dict[str, float]:
    return {wire: float(f"{getattr(forecast, name):.4g}") for name, wire in _FORECAST}


def starts_of(state: AutoscalerState) -> list[dict[str, Any]]:
    """Return the measured cold starts in the format of `status.coldStarts`."""
    return [{"pod": pod, **_phases(start)} for pod, start in state.signals.cold_starts.starts]


def recalled(status: Mapping[str, Any]) -> AutoscalerState:
    """Return the estimates of the previous operator process from its status, or an empty state if they do not
    parse."""
    try:
        starts = tuple(
            (str(entry["pod"]), ColdStart(*(float(entry[phase]) for phase in PHASES)))
            for entry in status.get("coldStarts") or ()
        )
        wire = status.get("forecast") or {}
        forecast = ForecastStatus(**{name: float(wire[key]) for name, key in _FORECAST}) if wire else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return AutoscalerState()
    return restored_state(starts, forecast)


def _rounded(value: float | None, scale: float, digits: int = 0) -> float | None:
    """Round a scaled value. Whole numbers become int, so that a JSON round trip does not look like a change."""
    if value is None:
        return None
    number = round(value * scale, digits)
    return int(number) if number == int(number) else number


def _binding(listed: Iterable[Mapping[str, Any]]) -> str:
    """Return the reason of the last listed change of the limit, or "Steady"."""
    moves = [
        str(entry.get("reason"))
        for entry in listed
        if entry.get("kind") == "admission" and entry.get("from") != entry.get("to")
    ]
    return moves[-1] if moves else "Steady"


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
        "numbers": {name: float(f"{value:.6g}") for name, value in reason.numbers},
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


def by_type(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the conditions of a status by type."""
    return {str(entry.get("type")): entry for entry in status.get("conditions") or ()}
