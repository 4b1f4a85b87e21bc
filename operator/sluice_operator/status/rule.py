"""The type of the rules from which the conditions are computed, and the rules that several conditions share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sluice_operator.status.facts import Facts
from sluice_operator.status.problems import problem_of


@dataclass(frozen=True, slots=True)
class ConditionState:
    """Result of a rule: the status of a condition, a CamelCase reason and a message."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


Rule = Callable[[Facts], ConditionState | None]


def problem(facts: Facts) -> ConditionState | None:
    """False with the most severe problem, if there is one."""
    found = problem_of(facts)
    return ConditionState("False", found.reason, found.message) if found else None


def not_applied(facts: Facts) -> ConditionState | None:
    """False if the spec could not be parsed or written: the pods then serve an earlier spec."""
    return None if facts.is_applied else problem(facts)
