"""One LLMDeployment in the few values that a table shows, from its spec and its status."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_STARTING: Final = frozenset({"Starting", "Fetching", "RollingOut"})  # reasons of Ready=False without a fault
_RESTING: Final = frozenset({"Asleep", "NoReplicas", "Paused"})
_ATTENTION: Final = ("MetricsAvailable", "SLOMet", "ScalingActive", "AdmissionActive")  # while Ready=True
_TERMINATING: Final = "Terminating"
_NO_OPERATOR: Final = "No operator has reconciled this resource: run sluice check."


@dataclass(frozen=True, slots=True)
class Summary:
    """Values that are not known are None."""

    namespace: str
    name: str
    model: str  # the URI of the spec
    ready: int
    desired: int | None
    phase: str
    reason: str  # of the condition that explains the phase, in CamelCase
    sentence: str
    attainment_percent: float | None
    kv_percent: int | None
    limit: int | None  # concurrent requests per replica
    ttft_ms: int | None
    itl_ms: int | None

    def as_json(self) -> dict[str, Any]:
        """With the field names of the resource."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "model": self.model,
            "readyReplicas": self.ready,
            "desiredReplicas": self.desired,
            "phase": self.phase,
            "reason": self.reason,
            "message": self.sentence,
            "attainmentPercent": self.attainment_percent,
            "kvOccupancyPercent": self.kv_percent,
            "concurrencyLimit": self.limit,
            "ttftMilliseconds": self.ttft_ms,
            "itlMilliseconds": self.itl_ms,
        }


def summarise(resource: Mapping[str, Any]) -> Summary:
    """Summarise one resource as the API server returns it."""
    metadata, status = resource["metadata"], resource.get("status") or {}
    conditions = {str(entry.get("type")): entry for entry in status.get("conditions") or ()}
    ready = int(status.get("readyReplicas") or 0)
    cause = _deletion(metadata) or _cause(conditions)
    slo = status.get("slo") or {}
    attained = slo.get("attainmentPercent")
    return Summary(
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata["name"]),
        model=str(((resource.get("spec") or {}).get("model") or {}).get("uri", "")),
        ready=ready,
        desired=status.get("desiredReplicas"),
        phase=_TERMINATING if metadata.get("deletionTimestamp") else _phase(conditions, ready),
        reason=str(cause.get("reason", "")),
        sentence=first_sentence(str(cause.get("message", ""))) if cause else _NO_OPERATOR,
        attainment_percent=None if attained is None else float(attained),
        kv_percent=status.get("kvOccupancyPercent"),
        limit=(status.get("admission") or {}).get("concurrency"),
        ttft_ms=slo.get("ttftMilliseconds"),
        itl_ms=slo.get("itlMilliseconds"),
    )


def _deletion(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Why a resource that is being deleted still exists, in place of a condition; empty for every other one."""
    if not metadata.get("deletionTimestamp"):
        return {}
    holders = ", ".join(map(str, metadata.get("finalizers") or ()))
    return {"reason": _TERMINATING, "message": f"It is being deleted and waits for the finalizers {holders}."}


def _cause(conditions: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The condition that a reader needs first: a resource that is not ready, then what is wrong although it serves."""
    ready = conditions.get("Ready", {})
    if ready.get("status") == "True":
        if is_stuck(conditions.get("Progressing", {})):
            return conditions["Progressing"]
        for kind in _ATTENTION:
            if conditions.get(kind, {}).get("status") == "False":
                return conditions[kind]
    return ready


def is_stuck(progressing: Mapping[str, Any]) -> bool:
    """True if the condition Progressing says that a change cannot go on, and not that all is done."""
    return progressing.get("status") == "False" and progressing.get("reason") not in (None, "", "Settled")


def _phase(conditions: Mapping[str, Mapping[str, Any]], ready: int) -> str:
    """One of Unknown, Paused, Serving, Scaling, Starting, Fetching, RollingOut, Asleep, NoReplicas, Degraded, Failed."""
    state = conditions.get("Ready")
    if state is None:
        return "Unknown"
    reason = str(state.get("reason", ""))
    if conditions.get("Paused", {}).get("status") == "True":
        return "Paused"
    if state.get("status") == "True":
        return "Scaling" if conditions.get("Progressing", {}).get("status") == "True" else "Serving"
    if reason in _STARTING | _RESTING:
        return reason
    return "Degraded" if ready else "Failed"


def first_sentence(message: str) -> str:
    """The message up to the end of its first sentence, on one line."""
    return re.split(r"(?<=[.!?])\s", " ".join(message.split()), maxsplit=1)[0]
