"""Selects the most severe problem of a resource and adds the step that solves it."""

import re
from typing import Final

from sluice import contract
from sluice_operator.cluster.fleet import ObservedPod
from sluice_operator.cluster.pod_status import Problem
from sluice_operator.status.facts import Facts

# Reasons of a crash of the engine; such a reason is reported until a pod of the same generation is ready.
CRASH_REASONS: Final = frozenset({*contract.CONFIG_REASONS, contract.REASON_ENGINE_CRASHED})
_NEXT_STEP: Final = {
    contract.REASON_MODEL_NOT_FOUND: "Put the model there or correct spec.model.uri; the operator retries.",
    contract.REASON_MODEL_INVALID: "Replace the model's files; the operator retries.",
    contract.REASON_UNSUPPORTED_ARCHITECTURE: "Set spec.model.uri to another model; the pods then start.",
    contract.REASON_ACCELERATOR_NOT_FOUND: "Request an accelerator that the nodes have, or set spec.engine.accelerator.count to 0.",
    contract.REASON_INSUFFICIENT_MEMORY: "Lower spec.engine.kvCache or raise spec.engine.resources.limits.memory.",
    contract.REASON_ENGINE_CRASHED: "Read the log with kubectl logs --previous; the kubelet restarts the container.",
    "Unschedulable": "Add or free a matching node or volume, or lower the requests in spec.engine.",
    "ImagePullFailed": "Correct spec.engine.image or the pull secret; the kubelet retries the pull.",
    contract.REASON_SECRET_NOT_FOUND: "Create the Secret in the namespace of the resource; the pod then starts.",
    contract.REASON_SECRET_INVALID: "Correct the entry of the Secret; the pod then starts.",
    contract.REASON_MODEL_ACCESS_DENIED: "Set spec.model.tokenSecretRef or correct its Secret; the engine retries.",
    contract.REASON_REVISION_NOT_FOUND: "Correct spec.model.uri; the pods are then replaced.",
    contract.REASON_DISK_FULL: "Give spec.model.cache a larger volume; the engine retries.",
    "InvalidSpec": "Correct the spec; until then the operator leaves the running pods unchanged.",
    "WriteRefused": "Grant the operator this permission or change the policy that rejects the write; the operator retries.",
    "PodsRefused": "Raise the quota, change the policy, or lower the requests in spec.engine.",
    "Conflict": "Rename one of the two objects, or delete the other one.",
}

_QUOTA: Final = "exceeded quota"  # in the API server's message
# Words of the API server's message, and the step that helps where the one of the reason does not; the first that match.
_BETTER_STEPS: Final = (
    (
        re.compile(r" is invalid: .*(immutable|may not change once set)", re.DOTALL),
        "Delete that object, which another writer has made so; the operator creates it again.",
    ),
    (
        re.compile(r"^PATCH /apis/apps/.* is invalid: .*spec\.template", re.DOTALL),
        "Correct the field of spec.engine that the pods have it from; the operator retries.",
    ),
    (
        re.compile("no PriorityClass with name"),
        "Create the PriorityClass or correct spec.engine.template.priorityClassName.",
    ),
    (
        re.compile("RuntimeClass .* not found"),
        "Create the RuntimeClass or correct spec.engine.template.runtimeClassName.",
    ),
    (
        re.compile("failed calling webhook"),
        "Start the webhook's service or remove its configuration; the operator retries.",
    ),
    (re.compile("because it is being terminated"), "The namespace is being deleted: nothing is left to do."),
    (
        re.compile(f"^(PATCH|POST) .*{_QUOTA}", re.DOTALL),
        "Raise the quota, or lower what counts towards it; the operator retries.",
    ),
    (re.compile("minimum (cpu|memory) usage per "), "Raise spec.engine.resources, or change the LimitRange."),
)
_NO_SURGE: Final = (
    "set spec.rollout.maxSurge to 0 and spec.rollout.maxUnavailable to 1: each pod then makes room for its successor, and one "
    "replica fewer serves meanwhile."
)


def problem_of(facts: Facts) -> Problem | None:
    """Return the most severe problem, with a next step, or None if there is no problem."""
    if facts.parse_errors:
        return _with_step(Problem("InvalidSpec", " ".join(facts.parse_errors)))
    if facts.conflict:
        return _with_step(Problem("Conflict", facts.conflict))
    if facts.model_problem:
        return facts.model_problem  # its message has the remedies
    if facts.write_error:
        return _with_step(Problem("WriteRefused", facts.write_error))
    if facts.rollout.replica_failure:
        return _with_step(Problem("PodsRefused", facts.rollout.replica_failure), _leave_quota(facts))
    for phase in ("failed", "loading", "unschedulable"):
        for pod in facts.fleet.pods:
            if pod.view.phase == phase and pod.problem is not None:
                return _with_step(pod.problem, _make_room(facts, pod))
    return _previous_crash(facts)


def _previous_crash(facts: Facts) -> Problem | None:
    """Keep a previous crash as the problem while new pods start, because none of them has become ready yet."""
    before = facts.previous.get("Ready", {})
    same_spec = before.get("observedGeneration") == facts.generation
    if (
        before.get("status") == "False"
        and before.get("reason") in CRASH_REASONS
        and same_spec
        and not facts.fleet.ready
        and not any(pod.progress for pod in facts.fleet.pods)  # the model arrives: the fault is over
    ):
        return Problem(str(before["reason"]), str(before.get("message", "")))
    return None


def _make_room(facts: Facts, pod: ObservedPod) -> str:
    """The next step for a pod of a rollout that finds no accelerator while pods of the earlier spec hold theirs."""
    if facts.spec is None or facts.spec.rollout.max_surge == 0 or pod.view.phase != "unschedulable":
        return ""
    device = facts.spec.engine.accelerator.resource
    holding = sum(o.view.phase == "ready" and o.template_hash != pod.template_hash for o in facts.fleet.pods)
    if not holding or not pod.problem or f"Insufficient {device}" not in pod.problem.message:
        return ""
    return f"No {device} is spare beside the {holding} of the earlier pods. Add one, or {_NO_SURGE}"


def _leave_quota(facts: Facts) -> str:
    """The next step for a rollout whose surge pod a quota refuses, while pods of the earlier spec use it up."""
    can_surge = facts.spec is not None and facts.spec.rollout.max_surge > 0
    if not can_surge or facts.rollout.done or not facts.fleet.ready or _QUOTA not in facts.rollout.replica_failure:
        return ""
    return f"Raise the quota, or {_NO_SURGE}"


def _with_step(problem: Problem, step: str = "") -> Problem:
    if problem.reason in ("WriteRefused", "PodsRefused"):
        step = step or next((each for words, each in _BETTER_STEPS if words.search(problem.message)), "")
    step = step or _NEXT_STEP.get(problem.reason, "")
    text = problem.message.rstrip()
    if text and text[-1] not in ".!?":
        text += "."
    return Problem(problem.reason, f"{text} {step}".strip())
