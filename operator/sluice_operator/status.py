"""The status as one pure value: what was there, what was seen now, and how old the written numbers are.

Counts, conditions and decisions go in at once. Latency, occupancy and limits only every `status_interval` and only
when they moved: a status that changes every few seconds wakes every watcher in the cluster.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sluice_operator.conditions import Facts, conditions, trouble_of
from sluice_operator.decide.coldstart import PHASES
from sluice_operator.decide.experience import experienced
from sluice_operator.decide.explain import REFUSING
from sluice_operator.decide.values import ColdStart, Memory, Outlook, Reason
from sluice_operator.observe import replicas_of
from sluice_operator.render import names
from sluice_operator.world import Key

MAX_DECISIONS: Final = 10
_MEASURED: Final = frozenset({"SLOMet", "MetricsAvailable"})
_NUMBERS: Final = ("slo", "kvOccupancyPercent", "admission", "coldStartSeconds", "forecast")
_OUTLOOK: Final = (
    ("rate", "requestsPerSecond"),
    ("planned", "plannedRequestsPerSecond"),
    ("dispersion", "dispersion"),
    ("volatility", "volatility"),
    ("output_tokens", "outputTokens"),
    ("prompt_tokens", "promptTokens"),
    ("cached_tokens", "cachedPromptTokens"),
    ("trust", "modelTrust"),
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
    """The whole status. `records` are decisions to append, `now` an RFC 3339 stamp, `starts` the measured cold starts."""
    ready = facts.fleet.ready
    wanted = facts.decision.desired if facts.decision else replicas_of(facts.fleet.deployment)
    desired = int(previous.get("desiredReplicas", 0)) if wanted is None else wanted
    trouble = trouble_of(facts)
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
        "reason": trouble.reason if trouble else listed[0]["reason"],
        "decisions": decisions,
        "conditions": listed,
        # Always set, for the schema's default would fill it in; on time, for in a large fleet starts come one by one.
        "coldStarts": list(starts if numbers_due else previous.get("coldStarts") or ()),
    }
    carried = {name: previous[name] for name in _NUMBERS if name in previous}
    return status | carried | (numbers(facts, decisions) if numbers_due or not carried else {})


def _calm(entry: dict[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """A measured condition whose verdict is the same keeps its old sentence while numbers are not due."""
    if before is None or entry["type"] not in _MEASURED:
        return entry
    same = all(before.get(name) == entry[name] for name in ("status", "reason", "observedGeneration"))
    return dict(before) if same else entry


def numbers(facts: Facts, listed: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The measured part of the status (`listed` are its decisions); what is not known is left out, so that the last known stays."""
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


def _forecast(outlook: Outlook) -> dict[str, float]:
    return {wire: float(f"{getattr(outlook, name):.4g}") for name, wire in _OUTLOOK}


def starts_of(memory: Memory) -> list[dict[str, Any]]:
    """The measured cold starts as the status lists them."""
    return [{"pod": pod, **_phases(start)} for pod, start in memory.starts]


def recalled(status: Mapping[str, Any]) -> Memory:
    """What a predecessor had learned, from the status it left; nothing of it where it does not read as written."""
    try:
        starts = tuple(
            (str(entry["pod"]), ColdStart(*(float(entry[phase]) for phase in PHASES)))
            for entry in status.get("coldStarts") or ()
        )
        wire = status.get("forecast") or {}
        outlook = Outlook(**{name: float(wire[key]) for name, key in _OUTLOOK}) if wire else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return Memory()
    return experienced(starts, outlook)


def _rounded(value: float | None, scale: float, digits: int = 0) -> float | None:
    """Whole numbers as int: JSON round trips must not look like a change."""
    if value is None:
        return None
    number = round(value * scale, digits)
    return int(number) if number == int(number) else number


def _binding(listed: Iterable[Mapping[str, Any]]) -> str:
    """What moved the limit last, of all that is listed."""
    moves = [
        str(entry.get("reason"))
        for entry in listed
        if entry.get("kind") == "admission" and entry.get("from") != entry.get("to")
    ]
    return moves[-1] if moves else "Steady"


def record(reason: Reason, now: str) -> dict[str, Any]:
    """One decision as the status lists it."""
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
    """The last decisions, newest last. A limit that keeps moving for one reason stays one entry, and so do refusals that
    come and go between two replica decisions: neither pushes the replica decisions out. The entry that stays is the
    newest, whole: its numbers are those of its sentence."""
    kept = [dict(entry) for entry in listed]
    for entry in records:
        new = dict(entry)
        if new["reason"] == REFUSING:
            begun = max((place for place, old in enumerate(kept) if old.get("kind") == "replicas"), default=-1)
            kept = kept[: begun + 1] + [old for old in kept[begun + 1 :] if old.get("reason") != REFUSING]
        elif new["kind"] == "admission":
            place = max((place for place, old in enumerate(kept) if old.get("reason") != REFUSING), default=-1)
            last = kept[place] if place >= 0 else {}
            if (last.get("kind"), last.get("reason")) == ("admission", new["reason"]):
                kept.pop(place)
        kept.append(new)
    return kept[-MAX_DECISIONS:]


def last_replicas(status: Mapping[str, Any]) -> int | None:
    """What the newest recorded replica decision went to; None without one, and where it was advice: nobody of us has
    set the count since."""
    for entry in reversed(status.get("decisions") or ()):
        if entry.get("kind") == "replicas" and isinstance(entry.get("to"), int):
            return None if entry.get("advised") else int(entry["to"])
    return None


def by_type(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The conditions of a status by their type."""
    return {str(entry.get("type")): entry for entry in status.get("conditions") or ()}
