"""Derives the conditions of the status from the facts of one pass, by ordered small rules.

Each rule reads the facts and returns a verdict (status, CamelCase reason, message with a next step), or None. The first
verdict applies, and the last rule of a condition always has one. The rules are pure, and no code acts on conditions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sluice import contract
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.api.spec import unknown_zones
from sluice_operator.autoscaler.explain.replicas import OTHER_WRITER
from sluice_operator.autoscaler.values import Decision
from sluice_operator.cluster.fleet import ObservedFleet
from sluice_operator.cluster.pod_status import Problem
from sluice_operator.status.rollout import Rollout

Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one rule: the status of a condition, a CamelCase reason and a message."""

    status: Status
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Input of the rules: everything that one pass observed and did."""

    generation: int
    spec: LLMDeploymentSpec | None = None  # None if the resource does not parse
    faults: tuple[str, ...] = ()  # one sentence per parse error
    conflict: str = ""  # the object of another owner that has the name of a child
    refused: str = ""  # the operator's write that the API server rejected, and the reason
    fleet: ObservedFleet = field(default_factory=lambda: ObservedFleet(deployment=None, pods=()))
    rollout: Rollout = field(default_factory=Rollout)  # state after the writes of this pass
    decision: Decision | None = None
    limits_unset: tuple[str, ...] = ()  # one sentence per engine that did not accept its limits in this pass
    other_writer: str = ""  # the decision's message about an external writer of the Deployment's replicas
    previous: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # conditions of the last status, by type


SCHEDULE_IGNORED: Final = "ScheduleIgnored"
Rule = Callable[[Facts], Verdict | None]

_CRASHES: Final = frozenset(
    {
        contract.REASON_MODEL_NOT_FOUND,
        contract.REASON_MODEL_INVALID,
        contract.REASON_ACCELERATOR_NOT_FOUND,
        contract.REASON_INSUFFICIENT_MEMORY,
        contract.REASON_ENGINE_CRASHED,
        contract.REASON_INVALID_OPTION,
    }
)
_NEXT_STEP: Final = {
    "ModelNotFound": "Put the model there or correct spec.model.uri; it is tried again by itself.",
    "ModelInvalid": "Replace the model's files; it is tried again by itself.",
    "AcceleratorNotFound": "Ask for an accelerator the nodes have, or set spec.engine.accelerator.count to 0.",
    "InsufficientMemory": "Lower spec.engine.kvCache or raise spec.engine.resources.limits.memory.",
    "EngineCrashed": "See kubectl logs --previous of the pod; it is restarted by itself.",
    "Unschedulable": "Add such a node or volume, free one, or ask for less in spec.engine.",
    "ImagePullFailed": "Correct spec.engine.image or the pull secret; it is pulled again by itself.",
    "SecretNotFound": "Create the Secret; the pod starts by itself then.",
    "InvalidSpec": "Correct the spec; what runs is left as it is until then.",
    "WriteRefused": "Give the operator this right, or mend the policy that refuses; it is tried again by itself.",
    "PodsRefused": "Raise the quota, mend the policy, or ask for less in spec.engine.",
    "Conflict": "Rename one of the two, or delete the other object.",
}


def problem_of(facts: Facts) -> Problem | None:
    """Return the most severe problem, with a next step, or None if there is no problem."""
    if facts.faults:
        return _with_step(Problem("InvalidSpec", " ".join(facts.faults)))
    if facts.conflict:
        return _with_step(Problem("Conflict", facts.conflict))
    if facts.refused:
        return _with_step(Problem("WriteRefused", facts.refused))
    if facts.rollout.refused:
        return _with_step(Problem("PodsRefused", facts.rollout.refused))
    reports = facts.fleet.pods
    for phase in ("failed", "unschedulable"):
        for report in reports:
            if report.view.phase == phase and report.problem is not None:
                return _with_step(report.problem)
    return _unhealed(facts)


def _unhealed(facts: Facts) -> Problem | None:
    """Keep a previous crash as the reason while new pods start, because none of them has become ready yet."""
    before = facts.previous.get("Ready", {})
    same_spec = before.get("observedGeneration") == facts.generation
    if before.get("status") == "False" and before.get("reason") in _CRASHES and same_spec and not facts.fleet.ready:
        return Problem(str(before["reason"]), str(before.get("message", "")))
    return None


def _with_step(problem: Problem) -> Problem:
    step = _NEXT_STEP.get(problem.reason, "")
    text = problem.message.rstrip()
    if text and text[-1] not in ".!?":
        text += "."
    return Problem(problem.reason, f"{text} {step}".strip())


# --- Ready, Available --------------------------------------------------------------------------------------------


def _unwritten(facts: Facts) -> Verdict | None:
    """Not ready if the spec could not be parsed or written: the pods then serve an earlier spec."""
    return _problem(facts) if facts.faults or facts.conflict or facts.refused else None


def _serving(facts: Facts) -> Verdict | None:
    if not facts.fleet.ready or not facts.rollout.done:
        return None
    return Verdict("True", "Serving", f"{facts.fleet.ready} of {len(facts.fleet.pods)} pods serve.")


def _problem(facts: Facts) -> Verdict | None:
    problem = problem_of(facts)
    return Verdict("False", problem.reason, problem.message) if problem else None


def _scaled_to_none(facts: Facts) -> Verdict | None:
    if facts.fleet.deployment is None or facts.fleet.deployment.get("spec", {}).get("replicas", 1) != 0:
        return None
    if facts.spec is not None and facts.spec.scaling.mode == "Auto" and facts.spec.scaling.min_replicas == 0:
        return Verdict("False", "Asleep", "No request has come for a while: the next one is held and starts a replica.")
    return Verdict("False", "NoReplicas", "Zero replicas are asked for: raise spec.replicas or set scaling.mode Auto.")


def _halted(facts: Facts) -> Verdict | None:
    if facts.spec is None or not facts.spec.paused:
        return None
    if facts.fleet.ready and not facts.rollout.written:
        return Verdict("False", "Paused", "Pods serve an earlier spec: set spec.paused to false to roll this one out.")
    if facts.fleet.ready:
        return None
    return Verdict("False", "Paused", "Paused before any pod served: set spec.paused to false to go on.")


def _rolling_out(facts: Facts) -> Verdict | None:
    if not facts.fleet.ready:
        return None
    return Verdict("False", "RollingOut", f"{facts.fleet.ready} pods serve; not all are made from this spec yet.")


def _starting(facts: Facts) -> Verdict:
    phases = sorted({report.view.phase for report in facts.fleet.pods})
    now = f"pods are {', '.join(phases)}" if phases else "no pod exists yet"
    return Verdict("False", "Starting", f"No replica serves yet: {now}. Wait for the model to load.")


def _available(facts: Facts) -> Verdict:
    if facts.fleet.ready:
        return Verdict("True", "ReplicasReady", f"{facts.fleet.ready} pods serve, of this spec or an earlier one.")
    return Verdict("False", "NoReadyReplica", "No replica is ready: the Ready condition says why.")


# --- Progressing, ModelLoaded ------------------------------------------------------------------------------------


def _stalled(facts: Facts) -> Verdict | None:
    """The new version fails to start while the old one serves, or the Deployment's progress deadline has passed."""
    if facts.rollout.done or _unwritten(facts):
        return None
    problem, late = problem_of(facts), facts.rollout.late
    serving = {report.template_hash for report in facts.fleet.pods if report.view.phase == "ready"}
    stuck = {report.template_hash for report in facts.fleet.pods if report.problem is not None}
    if not facts.fleet.ready or not (late or (problem and serving and stuck - serving)):
        return None
    why = f"{problem.reason}: {problem.message}" if problem else "the Deployment's progress deadline has passed."
    return Verdict("False", "RolloutStalled", f"The old pods go on serving; the new version does not start. {why}")


def _rolling(facts: Facts) -> Verdict | None:
    wanted = (facts.fleet.deployment or {}).get("spec", {}).get("replicas", 0)
    coming = [r.view.name for r in facts.fleet.pods if r.view.phase in ("scheduling", "pulling", "loading")]
    if facts.fleet.deployment is None or coming or facts.fleet.ready < wanted:
        return Verdict("True", "ReplicasStarting", f"{facts.fleet.ready} of {wanted} replicas serve, others start.")
    if wanted and not facts.rollout.done:
        return Verdict("True", "RollingOut", "Pods of an earlier spec are being replaced.")
    leaving = sum(report.view.phase == "draining" for report in facts.fleet.pods)
    return Verdict("True", "Draining", f"{leaving} pods finish their streams and leave.") if leaving else None


def _settled(facts: Facts) -> Verdict:
    return Verdict("False", "Settled", f"All {facts.fleet.ready} replicas serve the spec; nothing is under way.")


def _loaded(facts: Facts) -> Verdict | None:
    if facts.fleet.ready and facts.rollout.done:
        return Verdict("True", "Loaded", "The model is loaded and serves.")
    return None


def _load_failed(facts: Facts) -> Verdict | None:
    problem = problem_of(facts)
    return Verdict("False", problem.reason, problem.message) if problem and problem.reason in _CRASHES else None


def _not_loaded(facts: Facts) -> Verdict:
    if any(report.view.phase == "loading" for report in facts.fleet.pods):
        return Verdict("False", "Loading", "The engine loads the model; large ones take minutes.")
    if facts.fleet.ready:
        return Verdict("Unknown", "RollingOut", "Engines serve; none of this spec has started yet.")
    return Verdict("Unknown", "NoEngine", "No engine has started yet: see the Ready condition.")


# --- ScalingActive, MetricsAvailable, SLOMet, Paused -------------------------------------------------------------

_MODES: Final = {
    "Auto": Verdict("True", "Auto", "Sluice sets the replicas; status.decisions says why."),
    "Advise": Verdict("False", "AdviseOnly", "Decisions are recorded, not carried out: set scaling.mode Auto to act."),
    "External": Verdict("False", "ExternalScaler", "spec.replicas decides, set through the scale subresource."),
    "Off": Verdict("False", "ScalingOff", "spec.replicas decides: set scaling.mode Auto to let Sluice scale."),
}


def _blocked(facts: Facts) -> Verdict | None:
    if facts.faults or facts.conflict or facts.refused:
        return _problem(facts)
    if facts.spec is not None and facts.spec.paused:
        return Verdict("False", "Paused", "Nothing is scaled while spec.paused is true.")
    return None


def _contested(facts: Facts) -> Verdict | None:
    if not facts.other_writer or facts.spec is None or facts.spec.scaling.mode != "Auto":
        return None
    return Verdict("True", OTHER_WRITER, facts.other_writer)


def _unscheduled(facts: Facts) -> Verdict | None:
    """Report ignored schedules. The other schedules and the control law continue to apply."""
    if facts.spec is None or facts.spec.scaling.mode not in ("Auto", "Advise"):
        return None
    faults = unknown_zones(facts.spec.scaling.schedules)
    if not faults:
        return None
    verdict = _MODES[facts.spec.scaling.mode]
    left_out = f"Left out until corrected: {'; '.join(faults)}."
    return Verdict(verdict.status, SCHEDULE_IGNORED, f"{left_out} {verdict.message}")


def _mode(facts: Facts) -> Verdict:
    if facts.spec is None:
        return Verdict("Unknown", "InvalidSpec", "The spec cannot be read.")
    return _MODES[facts.spec.scaling.mode]


_METRICS: Final = {
    "Fresh": Verdict("True", "Fresh", "Every ready engine answers."),
    "NoTraffic": Verdict("True", "NoTraffic", "Every ready engine answers; no request has come lately."),
    "Partial": Verdict("True", "MetricsPartial", "Some engines do not answer; the missing count as busy."),
    "Stale": Verdict(
        "False", "MetricsStale", "No engine's numbers are fresh: nothing is scaled down. Check port 8001."
    ),
    "NoPods": Verdict("Unknown", "NoPods", "No engine is ready to be measured."),
}


def _metrics(facts: Facts) -> Verdict:
    if facts.decision is None:
        return Verdict("Unknown", "NotObserved", "Nothing was measured in this pass.")
    verdict = _METRICS[facts.decision.metrics]
    failing = next((report.scrape_error for report in facts.fleet.pods if report.scrape_error), "")
    return Verdict(verdict.status, verdict.reason, f"{verdict.message} {failing}".strip())


def _slo(facts: Facts) -> Verdict:
    decision, spec = facts.decision, facts.spec
    if decision is None or spec is None or decision.attainment is None:
        return Verdict("Unknown", "NoTraffic", "No finished request to judge by in the window.")
    share, target = decision.attainment * 100, float(spec.slo.attainment_percent)
    numbers = f"{share:.1f} % of requests were good, {target:g} % are asked for"
    if share >= target:
        return Verdict("True", "Met", f"{numbers}.")
    return Verdict("False", "Missed", f"{numbers}: {_slo_step(spec, decision)}.")


def _slo_step(spec: LLMDeploymentSpec, decision: Decision) -> str:
    if spec.scaling.mode in ("External", "Off"):
        return "raise spec.replicas or relax spec.slo"
    if decision.desired >= spec.scaling.max_replicas:
        return "raise scaling.maxReplicas or relax spec.slo"
    doing = "advised, nothing is carried out" if spec.scaling.mode == "Advise" else "being done"
    return f"see status.decisions for what is {doing}"


def _limits_held(facts: Facts) -> Verdict | None:
    """No limits are sent in this pass: engines apply the targets file as last written."""
    if facts.faults or facts.conflict:
        return _problem(facts)
    if facts.spec is not None and facts.spec.paused:
        return Verdict("False", "Paused", "No limits are sent while spec.paused is true; engines keep their targets.")
    return None


def _limits_unset(facts: Facts) -> Verdict | None:
    if not facts.limits_unset:
        return None
    first, count = min(facts.limits_unset), len(facts.limits_unset)
    return Verdict(
        "False",
        "LimitsNotSet",
        f"{count} of {len(facts.fleet.pods)} engines did not take their limits and serve by spec.slo and their own: "
        f"{first.rstrip('.')}. Let the operator reach port {contract.ADMIN_PORT}; where the token is refused restart the "
        "pod; it is tried again by itself.",
    )


_ADMISSION: Final = {
    "Auto": Verdict("True", "Auto", "Limits move inside spec.admission.concurrency, by spec.slo."),
    "Fixed": Verdict("True", "Fixed", "Every engine runs up to spec.admission.concurrency.max requests."),
    "Off": Verdict("False", "AdmissionOff", "Engines serve by spec.slo under their own ceilings; no limits are sent."),
}


def _admission(facts: Facts) -> Verdict:
    if facts.spec is None:
        return Verdict("Unknown", "InvalidSpec", "The spec cannot be read.")
    return _ADMISSION[facts.spec.admission.mode]


def _paused(facts: Facts) -> Verdict:
    if facts.spec is not None and facts.spec.paused:
        return Verdict("True", "PausedBySpec", "Nothing is written but this status: set spec.paused to false to go on.")
    return Verdict("False", "NotPaused", "The operator acts on this resource.")


RULES: Final[tuple[tuple[str, tuple[Rule, ...]], ...]] = (
    ("Ready", (_unwritten, _serving, _stalled, _problem, _scaled_to_none, _halted, _rolling_out, _starting)),
    ("Available", (_available,)),
    ("Progressing", (_stalled, _problem, _halted, _rolling, _settled)),
    ("ModelLoaded", (_loaded, _load_failed, _not_loaded)),
    ("ScalingActive", (_blocked, _contested, _unscheduled, _mode)),
    ("AdmissionActive", (_limits_held, _limits_unset, _admission)),
    ("MetricsAvailable", (_metrics,)),
    ("SLOMet", (_slo,)),
    ("Paused", (_paused,)),
)


def conditions(facts: Facts, now: str) -> list[dict[str, Any]]:
    """Return all conditions in the format of the status.

    now: an RFC 3339 timestamp, the transition time of each condition whose status changed. Raises LookupError if no
    rule of a condition has a verdict.
    """
    return [_entry(kind, _first(rules, facts), facts, now) for kind, rules in RULES]


def _first(rules: tuple[Rule, ...], facts: Facts) -> Verdict:
    for rule in rules:
        verdict = rule(facts)
        if verdict is not None:
            return verdict
    raise LookupError("the last rule of a condition must always have a verdict")


def _entry(kind: str, verdict: Verdict, facts: Facts, now: str) -> dict[str, Any]:
    before = facts.previous.get(kind, {})
    moved = before.get("status") != verdict.status
    return {
        "type": kind,
        "status": verdict.status,
        "reason": verdict.reason,
        "message": verdict.message[:2048],
        "observedGeneration": facts.generation,
        "lastTransitionTime": now if moved else before.get("lastTransitionTime", now),
    }
