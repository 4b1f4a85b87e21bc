"""How a canary rollout shows in the status: `status.canary`, rules of the conditions, and Events."""

from typing import Any, Final

from sluice_operator.status.facts import Facts
from sluice_operator.status.rule import ConditionState

PROGRESSING: Final = "CanaryProgressing"
ROLLED_BACK: Final = "CanaryRolledBack"


def canary_fields(facts: Facts) -> dict[str, Any]:
    """Return `status.canary`."""
    canary = facts.canary
    return {
        "phase": canary.phase,
        "step": canary.step,
        "weightPercent": facts.canary_weight,
        "reason": canary.reason,
        "message": canary.message[:2048],
    }


def on_trial(facts: Facts) -> ConditionState | None:
    """Ready: the old spec serves most requests while the new one is tried."""
    return _while_progressing(facts, "False")


def trying(facts: Facts) -> ConditionState | None:
    """Progressing: a canary is being tried."""
    return _while_progressing(facts, "True")


def rolled_back(facts: Facts) -> ConditionState | None:
    """Ready and Progressing: the pods of the old spec serve on."""
    if facts.canary.phase != "RolledBack":
        return None
    return ConditionState("False", ROLLED_BACK, f"{facts.canary.reason}: {facts.canary.message}")


def change_of(facts: Facts) -> tuple[str, str] | None:
    """Return the reason and message of an Event about a change of the canary; a rollback has one by its condition."""
    canary, before = facts.canary, facts.previous_canary
    if canary.phase in ("", "RolledBack"):
        return None
    same = (before.get("phase"), before.get("step"), before.get("reason")) == (canary.phase, canary.step, canary.reason)
    return None if same else (canary.reason, canary.message)


def _while_progressing(facts: Facts, status: Any) -> ConditionState | None:
    if facts.canary.phase != "Progressing" or not facts.fleet.ready:
        return None
    return ConditionState(status, PROGRESSING, facts.canary.message)
