"""Computes the new status from the previous status and the facts of one pass, as a pure function.

Counts, conditions and decisions are updated in every pass. Latency, occupancy and limits are updated only every
`status_interval`, and the status is written only if it changed: a status that changes every few seconds would wake
every watcher in the cluster.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from sluice_operator.autoscaler.values import Decision
from sluice_operator.cluster.client import Key
from sluice_operator.cluster.fleet import replicas_of
from sluice_operator.render import names
from sluice_operator.revisions.values import image_of
from sluice_operator.status.canary import canary_fields
from sluice_operator.status.conditions import conditions
from sluice_operator.status.decimal_text import rounded_text
from sluice_operator.status.decisions import append, last_admission_reason
from sluice_operator.status.estimates import forecast_fields, phases
from sluice_operator.status.facts import Facts
from sluice_operator.status.previous import readable
from sluice_operator.status.served_model import served_model

_MEASURED_CONDITIONS: Final = frozenset({"SLOMet", "MetricsAvailable", "AdmissionActive", "ScalingActive"})
_MEASURED_FIELDS: Final = ("slo", "kvOccupancyPercent", "admission", "coldStartSeconds", "forecast")


@dataclass(frozen=True, slots=True)
class Update:
    """What a status update adds to the facts of the pass."""

    time: str  # an RFC 3339 timestamp
    decisions: Sequence[Mapping[str, Any]] = ()  # to append to `status.decisions`
    measurements_due: bool = True  # False: keep the previous measured fields and messages


def build(key: Key, facts: Facts, previous: Mapping[str, Any], update: Update) -> dict[str, Any]:
    """Return the whole status."""
    previous, due = readable(previous), update.measurements_due
    count = facts.decision.desired if facts.decision else replicas_of(facts.fleet.deployment)
    desired = int(previous.get("desiredReplicas", 0)) if count is None else count
    listed = conditions(facts, update.time)
    if not due:
        listed = [_keep_message(entry, facts.previous.get(entry["type"])) for entry in listed]
    decisions = append(previous.get("decisions") or (), update.decisions)
    status: dict[str, Any] = {
        "observedGeneration": facts.generation,
        "replicas": sum(pod.view.phase != "draining" for pod in facts.fleet.pods),
        "readyReplicas": facts.fleet.ready,
        "desiredReplicas": desired,
        "selector": names.selector_text(key.name),
        "url": _url(key, facts, previous),
        "decisions": decisions,
        "conditions": listed,
    }
    if image := image_of((facts.fleet.deployment or {}).get("spec", {}).get("template") or {}):
        status["image"] = image
    carried = {name: previous[name] for name in _MEASURED_FIELDS if name in previous}
    measured = measurements(facts.decision, decisions) if (due or not carried) and facts.decision else {}
    model = previous.get("model") if facts.spec is None else served_model(facts.spec, facts.fleet.pods, previous)
    if facts.choice is not None and facts.choice.failure is not None:
        model = facts.choice.record.applied.fetched  # the pods serve the model of an earlier spec
    if model is not None:
        status["model"] = model
    if facts.canary.phase:
        status["canary"] = canary_fields(facts)
    return status | carried | measured


def _keep_message(entry: dict[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Keep the previous message of a measured condition whose state is the same while no measurements are due."""
    if before is None or entry["type"] not in _MEASURED_CONDITIONS:
        return entry
    same = all(before.get(name) == entry[name] for name in ("status", "reason", "observedGeneration"))
    return dict(before) if same else entry


def measurements(decision: Decision, listed: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the measured part of the status; `listed` are its decisions.

    Unknown values are omitted, so that the previous ones stay.
    """
    found: dict[str, Any] = {}
    slo = {
        "ttftMilliseconds": _milliseconds(decision.ttft),
        "itlMilliseconds": _milliseconds(decision.itl),
        "attainmentPercent": None if decision.attainment is None else rounded_text(100 * decision.attainment, 1),
    }
    if known := {name: value for name, value in slo.items() if value is not None}:
        found["slo"] = known
    if decision.kv_occupancy is not None:
        found["kvOccupancyPercent"] = round(100 * decision.kv_occupancy)
    if decision.concurrency is not None:
        found["admission"] = {"concurrency": decision.concurrency, "reason": last_admission_reason(listed)}
    if decision.cold_start is not None:
        found["coldStartSeconds"] = phases(decision.cold_start)
    if decision.forecast is not None:
        found["forecast"] = forecast_fields(decision.forecast)
    return found


def _milliseconds(seconds: float | None) -> int | None:
    """Round up, so that a latency above its target never reads as equal to it."""
    return None if seconds is None else ceil(round(1000 * seconds, 3))


def by_type(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the conditions of a status by type."""
    return {str(entry.get("type")): entry for entry in status.get("conditions") or ()}


def _url(key: Key, facts: Facts, previous: Mapping[str, Any]) -> str:
    """The URL for clients. A resource that does not parse keeps it."""
    if facts.spec is None and previous.get("url"):
        return str(previous["url"])
    has_certificate = facts.spec is not None and facts.spec.auth.tls_secret_ref is not None
    own = names.url(key.namespace, key.name, "https" if has_certificate else "http")
    return f"{facts.gateway_url or own}/v1"
