"""What one Pod's own JSON says: its phase of life, why it does not get further, and how long its start took.

Pure. The scheduler's, the kubelet's and the engine's own words are kept: nobody can mend what was paraphrased.
A duration lies between two stamps of one and the same clock: the API server's (creation, binding), or the kubelet's
(taken up, container started, ready). Their clocks may be minutes apart, and so may ours: none is compared with another.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sluice import contract
from sluice_operator.decide.values import ColdStart, EngineSample, PodPhase
from sluice_operator.world import Object

MAX_WORDS: Final = 1000  # of a foreign message that is carried on
UNEXPLAINED: Final = 60.0  # seconds from the container's start to ready that no phase accounts for: imports, probes
UNEXPLAINED_TIMES: Final = 2.0  # the phases: they do not cover everything
BACKWARDS: Final = (
    2.0  # seconds that a later stamp may lie before an earlier one: API servers differ by as much; more is
)
# a clock that was set in between, and says nothing
_IMAGE_TROUBLE: Final = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
_CONFIG_TROUBLE: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_ENGINE_REASONS: Final = frozenset(
    {
        contract.REASON_MODEL_NOT_FOUND,
        contract.REASON_MODEL_INVALID,
        contract.REASON_ACCELERATOR_NOT_FOUND,
        contract.REASON_INSUFFICIENT_MEMORY,
        contract.REASON_ENGINE_CRASHED,
        contract.REASON_PORT_TAKEN,
        contract.REASON_INVALID_OPTION,
    }
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a pod does not serve: a CamelCase reason and words that name the next step or quote who knows it."""

    reason: str
    message: str


def phase_of(pod: Object) -> tuple[PodPhase, Trouble | None]:
    """Where the pod is in its life, and what keeps it there."""
    status = pod.get("status") or {}
    if pod.get("metadata", {}).get("deletionTimestamp"):
        return "draining", None
    if condition(pod, "Ready").get("status") == "True":
        return "ready", None
    container = _engine_container(status)
    crashed = _crash(status, container)
    if crashed is not None:
        return "failed", crashed
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "True" and not pod.get("spec", {}).get("nodeName") and container is None:
        if scheduled.get("reason") == "Unschedulable":
            return "unschedulable", Trouble("Unschedulable", _words(scheduled.get("message", "")))
        return "scheduling", None
    if container is not None and "running" in (container.get("state") or {}):
        return "loading", None
    return "pulling", None


def condition(pod: Object, kind: str) -> dict[str, Any]:
    """The condition of that type of any object, or an empty one."""
    for entry in (pod.get("status") or {}).get("conditions") or ():
        if entry.get("type") == kind:
            return dict(entry)
    return {}


def has_ended(pod: Object) -> bool:
    """Whether the pod will never run again (evicted, refused by its node): the ReplicaSet counts it no more."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def template_hash(pod: Object) -> str:
    """Which version of the pod template the pod was made from; empty where nobody says."""
    return str((pod.get("metadata", {}).get("labels") or {}).get("pod-template-hash", ""))


def deletion_cost(pod: Object) -> int | None:
    """The pod's place in a scale-in, as annotated; None without a readable annotation."""
    text = str((pod.get("metadata", {}).get("annotations") or {}).get(contract.ANNOTATION_DELETION_COST, ""))
    return int(text) if text.lstrip("-").isdecimal() else None


def cold_start(pod: Object, sample: EngineSample | None) -> ColdStart | None:
    """How long the start took, phase by phase; None before the pod is ready, for one that has been restarted, and where
    a clock was set back meanwhile.

    The total is the sum of the phases: what a kubelet needs to hear of its pod is in none of them, and is no clock's
    difference. The Ready stamp moves whenever readiness comes back, so it is believed only where the engine's own
    account of its start explains it: a pod that was unready for a moment after hours did not start for hours.
    """
    status = pod.get("status") or {}
    container, ready = _engine_container(status), condition(pod, "Ready")
    if container is None or container.get("restartCount") or ready.get("status") != "True":
        return None
    schedule = _between(
        pod.get("metadata", {}).get("creationTimestamp"), condition(pod, "PodScheduled").get("lastTransitionTime")
    )
    started = ((container.get("state") or {}).get("running") or {}).get("startedAt")
    pull = _between(status.get("startTime"), started)
    served = _between(started, ready.get("lastTransitionTime"))
    if schedule is None or pull is None or served is None:
        return None
    spent = dict(sample.load_seconds) if sample else {}
    if served > UNEXPLAINED_TIMES * sum(spent.values()) + UNEXPLAINED:
        return None
    warm = spent.get("warm", 0.0)
    return ColdStart(schedule, pull, max(0.0, served - warm), warm, schedule + pull + served)


def start_of(pod: Object) -> datetime | None:
    """Which start it is in, told by the stamp of its beginning: the container's own where it was started again, else the
    pod's creation. To be compared with itself alone: it is of somebody else's clock."""
    container = _engine_container(pod.get("status") or {})
    if container is not None and container.get("restartCount"):
        again = stamp(((container.get("state") or {}).get("running") or {}).get("startedAt"))
        if again is not None:
            return again
    return stamp(pod.get("metadata", {}).get("creationTimestamp"))


def stamp(text: Any) -> datetime | None:
    """An RFC 3339 stamp; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _between(earlier: Any, later: Any) -> float | None:
    """Seconds from one stamp to a later one of the same clock; None without both, or where they run backwards."""
    begun, ended = stamp(earlier), stamp(later)
    if begun is None or ended is None:
        return None
    seconds = (ended - begun).total_seconds()
    return max(0.0, seconds) if seconds >= -BACKWARDS else None


def _engine_container(status: dict[str, Any]) -> dict[str, Any] | None:
    """The first container's status: engine pods have one container."""
    statuses = status.get("containerStatuses") or ()
    return dict(statuses[0]) if statuses else None


def _crash(status: dict[str, Any], container: dict[str, Any] | None) -> Trouble | None:
    if container is None:
        if status.get("phase") == "Failed":
            return Trouble(str(status.get("reason") or "PodFailed"), _words(status.get("message", "")))
        return None
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    reason = waiting.get("reason", "")
    if reason in _IMAGE_TROUBLE:
        image = container.get("image", "the engine image")
        return Trouble("ImagePullFailed", f"{image}: {_words(waiting.get('message', reason))}")
    if reason in _CONFIG_TROUBLE:
        words = _words(waiting.get("message", reason))
        return Trouble("SecretNotFound" if "secret" in words.lower() else "PodConfigInvalid", words)
    ended = state.get("terminated") or (
        (container.get("lastState") or {}).get("terminated") if "running" not in state else None
    )
    return None if ended is None else _ending(ended)


def _ending(ended: dict[str, Any]) -> Trouble:
    """Why the container ended: the engine's own {"reason", "message"} where it could still write it."""
    text = str(ended.get("message") or "")
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if isinstance(said, dict) and said.get("reason") in _ENGINE_REASONS:
        return Trouble(str(said["reason"]), _words(str(said.get("message", ""))))
    if ended.get("reason") == "OOMKilled":
        return Trouble(
            contract.REASON_INSUFFICIENT_MEMORY,
            "the kernel killed the engine for memory: raise engine.resources.limits.memory or lower engine.kvCache",
        )
    tail = f": {_words(text)}" if text else "; see kubectl logs --previous"
    return Trouble(contract.REASON_ENGINE_CRASHED, f"the engine exited with code {ended.get('exitCode', '?')}{tail}")


def _words(text: Any) -> str:
    return " ".join(str(text).split())[:MAX_WORDS]
