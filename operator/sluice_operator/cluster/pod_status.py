"""Reads one Pod's JSON: its lifecycle phase, the reason why it does not become ready, and its cold start.

Pure. Messages of the scheduler, the kubelet and the engine are quoted verbatim, so that a user sees the actual cause.
A duration is the difference of two timestamps of one clock: the API server's (creation, binding) or the kubelet's
(pod accepted, container started, ready). These clocks and the local one may differ by minutes and are never compared.
"""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sluice import contract
from sluice_operator.autoscaler.values import ColdStart, EngineSample, PodPhase
from sluice_operator.cluster.client import Object
from sluice_operator.render import names
from sluice_operator.render.engine_args import as_given

MAX_TEXT: Final = 1000  # characters of an external message that are kept
MAX_MESSAGE: Final = 4096  # characters of a termination message that are read; a kubelet keeps as many
UNREPORTED_SECONDS: Final = 60.0  # seconds from container start to ready that no load phase covers: imports, probes
UNREPORTED_FACTOR: Final = 2.0  # factor on the sum of the load phases, which do not cover everything
# Seconds by which a later timestamp may precede an earlier one: API servers differ by as much. A larger difference
# means that a clock was set in between, and the duration is unknown.
CLOCK_TOLERANCE: Final = 2.0
_INTEGER: Final = re.compile("-?[0-9]{1,10}")  # an int32, which the API server requires of a deletion cost
_IMAGE_PULL_REASONS: Final = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
_CONFIG_REASONS: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_ENGINE_REASONS: Final = frozenset(
    {*contract.CONFIG_REASONS, *contract.FETCH_REASONS, contract.REASON_ENGINE_CRASHED, contract.REASON_PORT_TAKEN}
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pod does not serve: a CamelCase reason, and a message that names the next step or quotes its source."""

    reason: str
    message: str


def phase_of(pod: Object) -> tuple[PodPhase, Problem | None]:
    """Return the lifecycle phase of the pod, and the problem that keeps it there, if any."""
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
            return "unschedulable", Problem("Unschedulable", _printable(scheduled.get("message", "")))
        return "scheduling", None
    if container is not None and "running" in (container.get("state") or {}):
        return "loading", None
    return "pulling", None


def condition(pod: Object, kind: str) -> dict[str, Any]:
    """Return the condition of type `kind` of any object; an empty dict if it has none."""
    for entry in (pod.get("status") or {}).get("conditions") or ():
        if entry.get("type") == kind:
            return dict(entry)
    return {}


def has_ended(pod: Object) -> bool:
    """True if the pod will never run again (evicted, rejected by its node); the ReplicaSet no longer counts it."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def template_hash(pod: Object) -> str:
    """Return the hash of the pod template that the pod was made from; empty without the label."""
    return str((pod.get("metadata", {}).get("labels") or {}).get("pod-template-hash", ""))


def canary_revision(pod: Object) -> str:
    """Return the fingerprint of the canary revision that the pod was made from; empty for a stable pod."""
    metadata = pod.get("metadata", {})
    if (metadata.get("labels") or {}).get(contract.LABEL_REVISION) != contract.REVISION_CANARY:
        return ""
    return str((metadata.get("annotations") or {}).get(contract.ANNOTATION_TEMPLATE, "unknown"))


def model_argument(pod: Object) -> str:
    """Return the model that the engine's command line names; empty for a container with another command."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        arguments = container.get("args") or []
        if container.get("name") == names.CONTAINER and len(arguments) > 1 and arguments[0] == "serve":
            return as_given(str(arguments[1]))
    return ""


def deletion_cost(pod: Object) -> int | None:
    """Return the pod's pod-deletion-cost annotation; None if it is missing or not an integer."""
    text = str((pod.get("metadata", {}).get("annotations") or {}).get(contract.ANNOTATION_DELETION_COST, ""))
    return int(text) if _INTEGER.fullmatch(text) else None


def accelerators(spec: Object) -> dict[str, int]:
    """Return the extended resources that the containers of a pod's spec request, such as nvidia.com/gpu, in units."""
    found: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if "/" in name and str(amount).isdecimal():
                found[name] = found.get(name, 0) + int(amount)
    return found


def cold_start(pod: Object, sample: EngineSample | None) -> ColdStart | None:
    """Return the durations of the start, in seconds by phase. None before the pod is ready, after a container restart,
    and if a clock was set back in between.

    The total is the sum of the phases. It excludes the time until the pod reaches its kubelet, which no single clock
    measures. The Ready timestamp changes whenever the pod becomes ready again, so it is used only if the load phases
    that the engine reports explain it: a pod that was unready for a moment after hours did not start for hours.
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
    if served > UNREPORTED_FACTOR * sum(spent.values()) + UNREPORTED_SECONDS:
        return None
    fetch, warm = spent.get("fetch", 0.0), spent.get("warm", 0.0)
    load = max(0.0, served - fetch - warm)
    return ColdStart(schedule, pull, load, warm, schedule + pull + served, fetch)


def start_of(pod: Object) -> datetime | None:
    """Return a timestamp that identifies the current start: the container's start after a restart, else the pod's
    creation. It comes from another machine's clock, so it may only be compared for equality with an earlier result."""
    container = _engine_container(pod.get("status") or {})
    if container is not None and container.get("restartCount"):
        again = stamp(((container.get("state") or {}).get("running") or {}).get("startedAt"))
        if again is not None:
            return again
    return stamp(pod.get("metadata", {}).get("creationTimestamp"))


def stamp(text: Any) -> datetime | None:
    """Parse an RFC 3339 timestamp with a time zone; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _between(earlier: Any, later: Any) -> float | None:
    """Seconds between two timestamps of one clock; None if one is missing or `later` precedes by over CLOCK_TOLERANCE."""
    begun, ended = stamp(earlier), stamp(later)
    if begun is None or ended is None:
        return None
    seconds = (ended - begun).total_seconds()
    return max(0.0, seconds) if seconds >= -CLOCK_TOLERANCE else None


def _engine_container(status: dict[str, Any]) -> dict[str, Any] | None:
    """The engine container's status, found by name: an injected sidecar may precede it in the list."""
    for entry in status.get("containerStatuses") or ():
        if entry.get("name") == names.CONTAINER:
            return dict(entry)
    return None


def _crash(status: dict[str, Any], container: dict[str, Any] | None) -> Problem | None:
    if container is None:
        if status.get("phase") == "Failed":
            return Problem(str(status.get("reason") or "PodFailed"), _printable(status.get("message", "")))
        return None
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    reason = waiting.get("reason", "")
    if reason in _IMAGE_PULL_REASONS:
        image = container.get("image", "the engine image")
        return Problem("ImagePullFailed", f"{image}: {_printable(waiting.get('message', reason))}")
    if reason in _CONFIG_REASONS:
        words = _printable(waiting.get("message", reason))
        return Problem("SecretNotFound" if "secret" in words.lower() else "PodConfigInvalid", words)
    ended = state.get("terminated") or (
        (container.get("lastState") or {}).get("terminated") if "running" not in state else None
    )
    return None if ended is None else _ending(ended)


def _ending(ended: dict[str, Any]) -> Problem:
    """Why the container ended: the {"reason", "message"} that the engine wrote, if it could still write it."""
    text = str(ended.get("message") or "")[:MAX_MESSAGE]
    if (reported := _report_in(text)) is not None:
        return reported
    if ended.get("reason") == "OOMKilled":
        return Problem(
            contract.REASON_INSUFFICIENT_MEMORY,
            "the kernel killed the engine because it exceeded its memory limit",
        )
    tail = f": {_printable(text)}" if text else ""
    return Problem(contract.REASON_ENGINE_CRASHED, f"the engine exited with code {ended.get('exitCode', '?')}{tail}")


def _report_in(text: str) -> Problem | None:
    """The report that the engine wrote; None for any other text. It is external input: every field is checked."""
    try:
        report = json.loads(text)
    except (ValueError, RecursionError):
        return None
    reason = report.get("reason") if isinstance(report, dict) else None
    if not isinstance(reason, str) or reason not in _ENGINE_REASONS:
        return None
    message = report.get("message")
    return Problem(reason, _printable(message if isinstance(message, str) else ""))


def _printable(text: Any) -> str:
    """The text as one printable line: the status cannot carry control characters and lone surrogates."""
    line = " ".join(str(text).split())[:MAX_TEXT]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
