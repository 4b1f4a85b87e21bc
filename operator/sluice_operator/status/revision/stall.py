"""Whether the pods of a new spec fail to start, and how to go back."""

from typing import Final

from sluice_operator.cluster.fleet import ObservedPod
from sluice_operator.cluster.pod_status import Problem
from sluice_operator.status.facts import Facts
from sluice_operator.status.problems import problem_of

_LATE: Final = "ProgressDeadlineExceeded"


def stall_of(facts: Facts) -> Problem | None:
    """Return why the new pods do not start while old ones serve: at their first problem, or after the deadline."""
    if facts.rollout.done or not facts.fleet.ready:
        return None
    serving = {pod.template_hash for pod in facts.fleet.pods if pod.view.phase == "ready"}
    failing = {pod.template_hash for pod in facts.fleet.pods if pod.problem is not None}
    found = problem_of(facts)
    if found is not None and (failing - serving or _is_refused(facts)):
        return found
    return failure_of(facts)


def failure_of(facts: Facts) -> Problem | None:
    """Return why the applied pods do not start, once the Deployment's progress deadline has passed.

    A pod that reports how much of the model it has loaded is late, but it does start.
    """
    if not facts.rollout.deadline_exceeded or any(map(_is_loading, facts.fleet.pods)):
        return None
    return problem_of(facts) or Problem(
        _LATE, "No further pod became ready within spec.rollout.progressDeadlineSeconds."
    )


def step_back(facts: Facts) -> str:
    """How the old pods' spec comes back, as a sentence."""
    if facts.spec is None or facts.choice is None:
        return ""
    if facts.spec.rollout.rollback == "Manual":
        return "To go back, apply the earlier spec again, or set spec.rollout.rollback to Auto."
    if facts.choice.record.good is None:
        return "No earlier revision is known to have been ready, so the operator cannot go back: apply an earlier spec."
    return (
        "The operator goes back to the last revision that was ready once no pod has become ready for "
        f"{facts.spec.rollout.progress_deadline_seconds} s."
    )


def _is_refused(facts: Facts) -> bool:
    """True if a quota or policy refuses the pods of the new template: none exists beside those of an earlier one."""
    return bool(facts.rollout.replica_failure) and len({pod.template_hash for pod in facts.fleet.pods}) == 1


def _is_loading(pod: ObservedPod) -> bool:
    return pod.view.phase == "loading" and pod.problem is None and bool(pod.loaded or pod.progress)
