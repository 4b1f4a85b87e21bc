"""Rules of the conditions about the pods: Ready, Available, Progressing, ModelLoaded."""

from dataclasses import replace
from typing import Final

from sluice import contract
from sluice_operator.status import canary
from sluice_operator.status.facts import Facts
from sluice_operator.status.problems import CRASH_REASONS, problem_of
from sluice_operator.status.revision.stall import stall_of, step_back
from sluice_operator.status.rule import ConditionState, Rule, not_applied, problem


def _serving(facts: Facts) -> ConditionState | None:
    if not facts.fleet.ready or not facts.rollout.done:
        return None
    ordered = int((facts.fleet.deployment or {}).get("spec", {}).get("replicas") or 0)  # a quota may refuse their pods
    expected = max(len(facts.fleet.pods), ordered)
    return ConditionState("True", "Serving", f"{facts.fleet.ready} of {expected} pods are ready.")


def _unrouted(facts: Facts) -> ConditionState | None:
    """Its pods serve, or would, but clients of the gateway reach another LLMDeployment by its name."""
    if not facts.unrouted or problem_of(facts) is not None:
        return None
    return ConditionState(
        "False",
        "Conflict",
        f"{facts.unrouted}. Set spec.model.servedName to another name; until then clients reach it by its own Service only.",
    )


def _without_accelerators(facts: Facts) -> ConditionState | None:
    """The accelerator budget of the namespace leaves no replica."""
    limit = None if facts.decision is None else facts.decision.budget
    if limit is None or limit.count or not limit.binds or facts.fleet.ready:
        return None
    return ConditionState(
        "False",
        limit.reason,
        "The accelerator budget of the namespace leaves no replica; the ScalingActive condition has the numbers. "
        "Raise the budget or scaling.priority, or lower what others need.",
    )


def _scaled_to_zero(facts: Facts) -> ConditionState | None:
    if facts.fleet.deployment is None or facts.fleet.deployment.get("spec", {}).get("replicas", 1) != 0:
        return None
    if facts.spec is not None and facts.spec.scaling.mode == "Auto" and facts.spec.scaling.min_replicas == 0:
        return ConditionState(
            "False",
            "Asleep",
            "The model is scaled to zero because it was idle; the gateway holds the next request and starts a replica.",
        )
    step = "Raise spec.replicas"
    if facts.spec is not None and facts.spec.scaling.mode == "Off":
        step = "Scale the Deployment"
    return ConditionState(
        "False", "NoReplicas", f"The desired replica count is 0. {step} or set spec.scaling.mode to Auto."
    )


def _paused(facts: Facts) -> ConditionState | None:
    if not facts.is_paused:
        return None
    if facts.fleet.ready and not facts.rollout.written:
        return ConditionState(
            "False", "Paused", "The pods serve an earlier spec. Set spec.paused to false to roll out this one."
        )
    if facts.fleet.ready:
        return None
    return ConditionState(
        "False", "Paused", "No pod is ready and the resource is paused. Set spec.paused to false to continue."
    )


def _rolling_out(facts: Facts) -> ConditionState | None:
    if not facts.fleet.ready:
        return None
    return ConditionState(
        "False", "RollingOut", f"{facts.fleet.ready} pods are ready; some of them still run an earlier spec."
    )


def _starting(facts: Facts) -> ConditionState:
    phases = sorted({pod.view.phase for pod in facts.fleet.pods})
    pods = f"pods are {', '.join(phases)}" if phases else "no pod exists yet"
    if progress := next((pod.progress for pod in facts.fleet.pods if pod.progress), ""):
        return ConditionState("False", "Fetching", f"No replica is ready. The model is being downloaded: {progress}.")
    if loaded := _loaded_part(facts):
        return ConditionState("False", "Starting", f"No replica is ready. The model is being loaded: {loaded}.")
    return ConditionState("False", "Starting", f"No replica is ready: {pods}. Wait until the model is loaded.")


def _loaded_part(facts: Facts) -> str:
    """How much of the model an engine has loaded, in words; "" if no engine reports it."""
    return next((pod.loaded for pod in facts.fleet.pods if pod.loaded), "")


def _available(facts: Facts) -> ConditionState:
    if facts.fleet.ready:
        return ConditionState("True", "ReplicasReady", f"{facts.fleet.ready} pods serve this spec or an earlier one.")
    if facts.model_problem is not None:
        return ConditionState("False", facts.model_problem.reason, facts.model_problem.message)
    return ConditionState("False", "NoReadyReplica", "No replica is ready. See the Ready condition for the cause.")


def _stalled(facts: Facts) -> ConditionState | None:
    """The new version fails to start while the old one serves, or the Deployment's progress deadline has passed."""
    found = None if not_applied(facts) else stall_of(facts)
    if found is None:
        return None
    pods = "The pods of the new spec do not start; the old pods continue to serve."
    return ConditionState(
        "False", "RolloutStalled", f"{pods} {found.reason}: {found.message} {step_back(facts)}".strip()
    )


def _rolled_back(facts: Facts) -> ConditionState | None:
    failure = None if facts.choice is None else facts.choice.failure
    if failure is None:
        return None
    return ConditionState(
        "False",
        "RolledBack",
        "The pods of this spec did not start, so the operator went back to the last revision that was ready. "
        f"{failure.reason}: {failure.message} The spec is tried again once spec.model, spec.engine, spec.auth or "
        "spec.rollout.drainSeconds changes.",
    )


def _progressing(facts: Facts) -> ConditionState | None:
    desired = (facts.fleet.deployment or {}).get("spec", {}).get("replicas", 0)
    starting = any(pod.view.phase in ("scheduling", "pulling", "loading") for pod in facts.fleet.pods)
    if facts.fleet.deployment is None or starting or facts.fleet.ready < desired:
        return ConditionState(
            "True", "ReplicasStarting", f"{facts.fleet.ready} of {desired} replicas are ready; the others are starting."
        )
    if desired and not facts.rollout.done:
        return ConditionState("True", "RollingOut", "Pods of this spec are replacing pods of an earlier one.")
    draining = sum(pod.view.phase == "draining" for pod in facts.fleet.pods)
    if not draining:
        return None
    return ConditionState("True", "Draining", f"{draining} pods finish their running requests before they terminate.")


def _settled(facts: Facts) -> ConditionState:
    return ConditionState(
        "False", "Settled", f"All {facts.fleet.ready} replicas serve this spec; no change is in progress."
    )


def _loaded(facts: Facts) -> ConditionState | None:
    if facts.fleet.ready and facts.rollout.done:
        return ConditionState("True", "Loaded", "The model is loaded and serves requests.")
    return None


def _refused(facts: Facts) -> ConditionState | None:
    """The model of this spec is loaded by no pod, also while pods of an earlier one serve."""
    return None if facts.model_problem is None else problem(facts)


def _load_failed(facts: Facts) -> ConditionState | None:
    found = problem_of(facts)
    if found is None or found.reason not in {*CRASH_REASONS, *contract.FETCH_REASONS}:
        return None
    return ConditionState("False", found.reason, found.message)


def _not_loaded(facts: Facts) -> ConditionState:
    state = _loading(facts)
    if not facts.model_not_checked:
        return state
    return replace(state, message=f"{state.message} The model was not checked before: {facts.model_not_checked}.")


def _loading(facts: Facts) -> ConditionState:
    if progress := next((pod.progress for pod in facts.fleet.pods if pod.progress), ""):
        return ConditionState("False", "Fetching", f"The engine downloads the model: {progress}.")
    if loaded := _loaded_part(facts):
        return ConditionState("False", "Loading", f"The engine is loading the model: {loaded}.")
    if any(pod.view.phase == "loading" for pod in facts.fleet.pods):
        return ConditionState("False", "Loading", "The engine is loading the model; a large model takes minutes.")
    if facts.fleet.ready:
        return ConditionState(
            "Unknown", "RollingOut", "The ready engines run an earlier spec; none of this spec has started."
        )
    return ConditionState("Unknown", "NoEngine", "No engine has started. See the Ready condition for the cause.")


READY: Final[tuple[Rule, ...]] = (
    not_applied,
    _rolled_back,
    _unrouted,
    _serving,
    canary.rolled_back,
    canary.on_trial,
    _stalled,
    problem,
    _without_accelerators,
    _scaled_to_zero,
    _paused,
    _rolling_out,
    _starting,
)
AVAILABLE: Final[tuple[Rule, ...]] = (_available,)
PROGRESSING: Final[tuple[Rule, ...]] = (
    not_applied,
    _rolled_back,
    canary.rolled_back,
    canary.trying,
    _stalled,
    problem,
    _paused,
    _progressing,
    _settled,
)
MODEL_LOADED: Final[tuple[Rule, ...]] = (_refused, _rolled_back, _loaded, _load_failed, _not_loaded)
