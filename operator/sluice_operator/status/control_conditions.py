"""Rules of the conditions about control: ScalingActive, AdmissionActive, MetricsAvailable, SLOMet, Paused."""

from typing import Final

from sluice import contract
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.api.spec import unknown_zones
from sluice_operator.autoscaler.explain.replicas import OTHER_WRITER
from sluice_operator.autoscaler.values import Decision
from sluice_operator.status.facts import Facts
from sluice_operator.status.rule import ConditionState, Rule, not_applied, problem

SCHEDULE_IGNORED: Final = "ScheduleIgnored"
_UNREADABLE: Final = ConditionState(
    "Unknown", "InvalidSpec", "The spec is invalid. See the Ready condition for the cause."
)
_SCALING: Final = {
    "Auto": ConditionState("True", "Auto", "The operator sets the replica count; status.decisions has the reasons."),
    "Advise": ConditionState(
        "False",
        "AdviseOnly",
        "The operator only records its decisions in status.decisions. Set spec.scaling.mode to Auto to apply them.",
    ),
    "External": ConditionState(
        "False", "ExternalScaler", "spec.replicas sets the replica count; an external autoscaler may write it."
    ),
    "Off": ConditionState(
        "False",
        "ScalingOff",
        "The operator does not set the replica count: scale the Deployment itself, or set spec.scaling.mode to Auto.",
    ),
}
_ADMISSION: Final = {
    "Auto": ConditionState(
        "True", "Auto", "The operator adjusts the admission limits within spec.admission.concurrency to meet spec.slo."
    ),
    "Fixed": ConditionState(
        "True", "Fixed", "Each engine runs at most spec.admission.concurrency.max requests at once."
    ),
    "Off": ConditionState(
        "False", "AdmissionOff", "The operator sends no limits; each engine applies spec.slo by itself."
    ),
}
_METRICS: Final = {
    "Fresh": ConditionState("True", "Fresh", "Each ready engine returns metrics."),
    "NoTraffic": ConditionState("True", "NoTraffic", "Each ready engine returns metrics; no request arrived recently."),
    "Partial": ConditionState(
        "True", "MetricsPartial", "Some ready engines return no metrics; the autoscaler counts them as busy."
    ),
    "Stale": ConditionState(
        "False",
        "MetricsStale",
        "No engine has fresh metrics, so the autoscaler removes no replica. "
        f"Check that the operator reaches port {contract.ADMIN_PORT}.",
    ),
    "NoPods": ConditionState("Unknown", "NoPods", "No engine is ready, so there are no metrics."),
}


def _scaling_paused(facts: Facts) -> ConditionState | None:
    if not facts.is_paused:
        return None
    return ConditionState("False", "Paused", "The operator scales nothing while spec.paused is true.")


def _external_writer(facts: Facts) -> ConditionState | None:
    if not facts.external_writer or facts.spec is None or facts.spec.scaling.mode != "Auto":
        return None
    return ConditionState("True", OTHER_WRITER, facts.external_writer)


def _accelerator_budget(facts: Facts) -> ConditionState | None:
    """The accelerator budget limits the count, or cannot be read."""
    limit = None if facts.decision is None else facts.decision.budget
    if limit is None or facts.spec is None or facts.spec.scaling.mode == "Off":
        return None
    state = _SCALING[facts.spec.scaling.mode]
    return ConditionState(state.status, limit.reason, f"{limit.sentence[0].upper()}{limit.sentence[1:]}")


def _ignored_schedules(facts: Facts) -> ConditionState | None:
    """Report ignored schedules. The other schedules and the control law continue to apply."""
    if facts.spec is None or facts.spec.scaling.mode not in ("Auto", "Advise"):
        return None
    unknown = unknown_zones(facts.spec.scaling.schedules)
    if not unknown:
        return None
    state = _SCALING[facts.spec.scaling.mode]
    ignored = f"The operator ignores schedules until they are corrected: {'; '.join(unknown)}."
    return ConditionState(state.status, SCHEDULE_IGNORED, f"{ignored} {state.message}")


def _scaling(facts: Facts) -> ConditionState:
    return _UNREADABLE if facts.spec is None else _SCALING[facts.spec.scaling.mode]


def _metrics(facts: Facts) -> ConditionState:
    if facts.decision is None:
        return ConditionState("Unknown", "NotObserved", "The operator made no decision in this pass.")
    state = _METRICS[facts.decision.metrics]
    error = next((pod.scrape_error for pod in facts.fleet.pods if pod.scrape_error), "")
    return ConditionState(state.status, state.reason, f"{state.message} {error}".strip())


def _slo(facts: Facts) -> ConditionState:
    decision, spec = facts.decision, facts.spec
    if decision is None or spec is None or decision.attainment is None:
        return ConditionState(
            "Unknown", "NoTraffic", "No request finished in the window, so the attainment is unknown."
        )
    share, target = decision.attainment * 100, float(spec.slo.attainment_percent)
    attainment = f"{share:.1f} % of requests met the SLO; the target is {target:g} %"
    if share >= target:
        return ConditionState("True", "Met", f"{attainment}.")
    return ConditionState("False", "Missed", f"{attainment}: {_slo_step(spec, decision)}.")


def _slo_step(spec: LLMDeploymentSpec, decision: Decision) -> str:
    if spec.scaling.mode == "External":
        return "raise spec.replicas or relax spec.slo"
    if spec.scaling.mode == "Off":
        return "scale the Deployment or relax spec.slo"
    if decision.budget is not None and decision.budget.binds:
        return "raise the accelerator budget of the namespace or scaling.priority, or relax spec.slo"
    if decision.desired >= spec.scaling.max_replicas:
        return "raise spec.scaling.maxReplicas or relax spec.slo"
    if spec.scaling.mode == "Advise":
        return "see status.decisions for the advice, which the operator does not apply"
    return "see status.decisions for what the operator does"


def _limits_held(facts: Facts) -> ConditionState | None:
    """No limits are sent in this pass: engines apply the targets file as last written."""
    if facts.parse_errors or facts.conflict or facts.model_problem:
        return problem(facts)
    if facts.is_paused:
        return ConditionState(
            "False", "Paused", "The operator sends no limits while spec.paused is true; engines keep their targets."
        )
    return None


def _limits_not_set(facts: Facts) -> ConditionState | None:
    if not facts.limit_errors:
        return None
    first, count = min(facts.limit_errors), len(facts.limit_errors)
    return ConditionState(
        "False",
        "LimitsNotSet",
        f"{count} of {len(facts.fleet.pods)} engines did not accept their limits and apply spec.slo by themselves: "
        f"{first.rstrip('.')}. Let the operator reach port {contract.ADMIN_PORT}; if the engine rejects the token, "
        "restart the pod. The operator retries.",
    )


def _admission(facts: Facts) -> ConditionState:
    return _UNREADABLE if facts.spec is None else _ADMISSION[facts.spec.admission.mode]


def _paused(facts: Facts) -> ConditionState:
    if facts.is_paused:
        return ConditionState(
            "True", "PausedBySpec", "The operator writes only this status. Set spec.paused to false to continue."
        )
    return ConditionState("False", "NotPaused", "The operator reconciles this resource.")


SCALING_ACTIVE: Final[tuple[Rule, ...]] = (
    not_applied,
    _scaling_paused,
    _external_writer,
    _accelerator_budget,
    _ignored_schedules,
    _scaling,
)
ADMISSION_ACTIVE: Final[tuple[Rule, ...]] = (_limits_held, _limits_not_set, _admission)
METRICS_AVAILABLE: Final[tuple[Rule, ...]] = (_metrics,)
SLO_MET: Final[tuple[Rule, ...]] = (_slo,)
PAUSED: Final[tuple[Rule, ...]] = (_paused,)
