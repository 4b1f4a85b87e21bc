"""One step of the canary's state machine: the next state as a function of the spec, the state, what is observed and now.

The rules are tried in order; the first one that returns a state decides. Reasons are CamelCase and become Events.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from sluice_operator.api import Canary
from sluice_operator.canary.shares import pods_of_step
from sluice_operator.canary.values import CanaryState, Counts, Phase, Trial

# Fewer say little: one error of 20 is 5 %, and of 20 good requests the true share is above 86 % with 95 % confidence.
MIN_REQUESTS: Final = 20
# A pull that is tried again, or one crash with its first restarts, takes less.
PROBLEM_SECONDS: Final = 60.0
UNSCHEDULABLE: Final = "Unschedulable"


@dataclass(frozen=True, slots=True)
class _Case:
    """The input of a rule. `now` is in seconds since 1970, as a restarted operator must go on with it."""

    settings: Canary
    state: CanaryState
    trial: Trial
    now: float


def advance(settings: Canary | None, state: CanaryState, trial: Trial, now: float) -> CanaryState:
    """Return the next state. `settings` None: changes apply without a canary."""
    if settings is None:
        return CanaryState(exists=state.exists)
    if trial.applied == trial.wanted:
        return _applied(state, trial)
    if state.revision == trial.wanted and state.phase in ("Promoting", "RolledBack"):
        return state
    if state.revision != trial.wanted or state.phase != "Progressing":
        return _started(settings, state, trial)
    fails_since = (state.fails_since or now) if _problem(trial) else None
    case = _Case(settings, replace(_counted(state, trial), fails_since=fails_since), trial, now)
    return next(found for rule in _RULES if (found := rule(case)) is not None)


def _applied(state: CanaryState, trial: Trial) -> CanaryState:
    """The stable pods have the wanted revision, or are being replaced by it."""
    if state.revision != trial.wanted or state.phase not in ("Promoting", "Promoted"):
        return CanaryState(exists=state.exists)  # the spec was changed back
    if state.phase == "Promoting" and trial.is_rolled_out:
        return _moved(state, "Promoted", "CanaryPromoted", "All pods serve the new spec.")
    if state.phase == "Promoting" and trial.lacks_nodes:
        text = "The new spec is rolled out. The canary's pods make room for those that find no node."
        return _moved(state, "Promoted", "CanaryPromoted", text)
    return state


def _started(settings: Canary, state: CanaryState, trial: Trial) -> CanaryState:
    """Without a ready stable pod there is nothing to protect and nothing to compare with: the change applies at once."""
    if not trial.applied or not trial.stable_ready:
        return CanaryState(exists=state.exists)
    started = CanaryState("Progressing", trial.wanted, step=1, exists=True)
    return _waits(_Case(settings, started, trial, 0.0), "CanaryStarted")


def _counted(state: CanaryState, trial: Trial) -> CanaryState:
    """The state with what the pods have counted since the last pass."""
    seen, counts = dict(state.seen), state.counts
    for pod in trial.pods:
        if pod.totals is not None:
            counts = counts.plus(pod.totals.since(seen.get(pod.name, Counts())))
            seen[pod.name] = pod.totals
    present = {pod.name for pod in trial.pods}
    return replace(state, counts=counts, seen=tuple(sorted((pod, at) for pod, at in seen.items() if pod in present)))


def _cannot_start(case: _Case) -> CanaryState | None:
    problem, since = _problem(case.trial), case.state.fails_since
    if problem is None or since is None or case.now - since < PROBLEM_SECONDS:
        return None
    return _rolled_back(case.state, *problem)


def _problem(trial: Trial) -> tuple[str, str] | None:
    """Reason and message of the first pod that has one. A missing node is not the new spec's fault."""
    for pod in trial.pods:
        if pod.problem is not None and pod.problem[0] != UNSCHEDULABLE:
            return pod.problem[0], f"Pod {pod.name} does not serve: {pod.problem[1]}"
    return None


def _late(case: _Case) -> CanaryState | None:
    """Not while a pod waits for a node or loads a large model."""
    waits = any(pod.loads or (pod.problem or ("",))[0] == UNSCHEDULABLE for pod in case.trial.pods)
    if not case.trial.is_late or waits or case.state.since is not None:
        return None
    return _rolled_back(case.state, "ProgressDeadlineExceeded", "No pod of the canary became ready in time.")


def _pods_start(case: _Case) -> CanaryState | None:
    if case.state.since is not None:
        return None
    needed = pods_of_step(case.settings, case.state.step, case.trial.replicas)
    if not 0 < needed <= case.trial.ready:
        return _waits(case, case.state.reason)
    weight = case.settings.weight_percent * case.state.step
    begun = replace(case.state, since=case.now, counts=Counts())
    text = f"Step {case.state.step} of {case.settings.steps}: the canary serves {weight} % of the requests."
    return replace(begun, reason="CanaryServes", message=text)


def _errors(case: _Case) -> CanaryState | None:
    counts, most = case.state.counts, float(case.settings.max_error_percent)
    if counts.requests < MIN_REQUESTS or counts.error_percent <= most:
        return None
    text = (
        f"{counts.failed:.0f} of {counts.requests:.0f} requests of the canary ended with an error "
        f"({counts.error_percent:.1f} %); maxErrorPercent is {case.settings.max_error_percent}."
    )
    return _rolled_back(case.state, "ErrorRate", text)


def _step_lasts(case: _Case) -> CanaryState | None:
    since = min(case.state.since or 0.0, case.now)  # the clock may have been set back
    state = replace(case.state, since=since)
    return state if case.now - since < case.settings.interval_seconds else None


def _too_few_requests(case: _Case) -> CanaryState | None:
    if case.state.counts.requests >= MIN_REQUESTS:
        return None
    text = (
        f"Step {case.state.step} of {case.settings.steps} lasts on: fewer than {MIN_REQUESTS} requests have ended at "
        "the canary, too few to judge it."
    )
    return replace(case.state, reason="TooFewRequests", message=text)


def _misses_slo(case: _Case) -> CanaryState | None:
    counts, least = case.state.counts, float(case.settings.min_attainment_percent)
    if counts.attainment_percent >= least:
        return None
    text = (
        f"{counts.attainment_percent:.1f} % of the canary's requests met the SLO targets in step {case.state.step}; "
        f"minAttainmentPercent is {case.settings.min_attainment_percent}."
    )
    return _rolled_back(case.state, "SLOMissed", text)


def _passes(case: _Case) -> CanaryState:
    state, counts, settings = case.state, case.state.counts, case.settings
    numbers = (
        f"Step {state.step} of {settings.steps} passed: {counts.requests:.0f} requests, {counts.error_percent:.1f} % "
        f"errors, {counts.attainment_percent:.1f} % within the SLO."
    )
    if state.step >= settings.steps:
        return _moved(state, "Promoting", "CanaryPromoting", f"{numbers} The new spec is rolled out to all pods.")
    raised = replace(state, step=state.step + 1, since=None, counts=Counts())
    return replace(raised, reason="CanaryAdvanced", message=f"{numbers} The next step's pods start.")


_RULES: Final[tuple[Callable[[_Case], CanaryState | None], ...]] = (
    _errors,
    _cannot_start,
    _late,
    _pods_start,
    _step_lasts,
    _too_few_requests,
    _misses_slo,
    _passes,
)


def _waits(case: _Case, otherwise: str) -> CanaryState:
    """The state while the pods of a step start; a missing node is named, because only a user can add it."""
    needed = pods_of_step(case.settings, case.state.step, case.trial.replicas)
    for pod in case.trial.pods:
        if pod.problem is not None and pod.problem[0] == UNSCHEDULABLE:
            text = f"The canary waits for a node: {pod.problem[1]} With rollout.maxSurge 0 it takes the place of a pod."
            return replace(case.state, reason="CanaryUnschedulable", message=text)
    if otherwise == "CanaryAdvanced":
        return case.state
    text = f"Step {case.state.step} of {case.settings.steps}: the canary's pods start ({needed} needed)."
    return replace(case.state, reason="CanaryStarted", message=text)


def _rolled_back(state: CanaryState, reason: str, message: str) -> CanaryState:
    text = f"{message.rstrip('.')}. The old spec serves on. Change the spec to try again."
    return _moved(state, "RolledBack", reason, text)


def _moved(state: CanaryState, phase: Phase, reason: str, message: str) -> CanaryState:
    """The state in a phase that measures nothing."""
    return CanaryState(phase, state.revision, state.step, reason=reason, message=message, exists=state.exists)
