"""Computes the conditions of the status from the facts of one pass, by ordered small rules.

Each rule reads the facts and returns a state (status, CamelCase reason, message with a next step), or None. The first
state applies, and the last rule of a condition always returns one. The rules are pure, and no code acts on conditions.
"""

from typing import Any, Final

from sluice_operator.status import control_conditions, serving_conditions
from sluice_operator.status.facts import Facts
from sluice_operator.status.revision.upgrade_condition import UPGRADE_AVAILABLE
from sluice_operator.status.rule import ConditionState, Rule

RULES: Final[tuple[tuple[str, tuple[Rule, ...]], ...]] = (
    ("Ready", serving_conditions.READY),
    ("Available", serving_conditions.AVAILABLE),
    ("Progressing", serving_conditions.PROGRESSING),
    ("ModelLoaded", serving_conditions.MODEL_LOADED),
    ("ScalingActive", control_conditions.SCALING_ACTIVE),
    ("AdmissionActive", control_conditions.ADMISSION_ACTIVE),
    ("MetricsAvailable", control_conditions.METRICS_AVAILABLE),
    ("SLOMet", control_conditions.SLO_MET),
    ("Paused", control_conditions.PAUSED),
    ("UpgradeAvailable", UPGRADE_AVAILABLE),
)


def conditions(facts: Facts, now: str) -> list[dict[str, Any]]:
    """Return all conditions in the format of the status.

    now: an RFC 3339 timestamp, the transition time of each condition whose status changed. Raises LookupError if no
    rule of a condition applies.
    """
    return [_entry(kind, _first(rules, facts), facts, now) for kind, rules in RULES]


def _first(rules: tuple[Rule, ...], facts: Facts) -> ConditionState:
    for rule in rules:
        state = rule(facts)
        if state is not None:
            return state
    raise LookupError("the last rule of a condition must always return a state")


def _entry(kind: str, state: ConditionState, facts: Facts, now: str) -> dict[str, Any]:
    before = facts.previous.get(kind, {})
    changed = before.get("status") != state.status
    return {
        "type": kind,
        "status": state.status,
        "reason": state.reason,
        "message": state.message[:2048],
        "observedGeneration": facts.generation,
        "lastTransitionTime": now if changed else before.get("lastTransitionTime", now),
    }
