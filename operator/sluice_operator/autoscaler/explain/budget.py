"""Explanations of the accelerator budget."""

import heapq
import math
from collections.abc import Mapping
from typing import Final

from sluice_operator.autoscaler.budget.share import worth
from sluice_operator.autoscaler.budget.values import Budget, Want

_MOST_NAMED: Final = 4  # deployments in one sentence


def limited(budget: Budget, own: Want, shares: Mapping[str, int], count: int) -> str:
    """Why fewer replicas than needed are granted, and what the others have."""
    share = shares[own.name]
    body = f"{own.count} are needed; {_words(budget)} gives {share}{_per_replica(own)}."
    if count < share:
        return f"{body} It stays at {count} until other pods have terminated and released theirs."
    return f"{body}{_others(budget, own, shares)}"


def invalid(budget: Budget, own: Want) -> str:
    """The annotation cannot be read: no growth and no removal because of it."""
    return f"{budget.problem} Until it is corrected, no replica is added to the {own.current} in force."


def unobserved(budget: Budget, own: Want) -> str:
    """The operator has just started."""
    names = ", ".join(budget.unobserved[:_MOST_NAMED])
    return (
        f"{own.count} are needed; {own.current} stay until the operator has observed the other deployments that share "
        f"{_words(budget)}: {names}."
    )


def _words(budget: Budget) -> str:
    return f"the namespace's accelerator budget ({budget.resource}={budget.limit})"


def _per_replica(own: Want) -> str:
    return "" if own.each == 1 else f" replicas of {own.each} accelerators each"


def _others(budget: Budget, own: Want, shares: Mapping[str, int]) -> str:
    """Who has the rest: the deployments with most accelerators first."""
    having = [other for other in budget.others if shares[other.name]]
    named = heapq.nsmallest(_MOST_NAMED, having, key=lambda other: (-shares[other.name] * other.each, other.name))
    parts = [_part(other, own, shares[other.name], shares[own.name]) for other in named]
    if len(having) > _MOST_NAMED:
        parts.append(f"{len(having) - _MOST_NAMED} more deployments have the rest")
    if budget.fixed:
        parts.append(f"{budget.fixed} accelerators are held by deployments that the operator does not scale")
    return f" {'; '.join(parts)}." if parts else ""


def _part(other: Want, own: Want, count: int, share: int) -> str:
    """The share of another deployment, and why it comes before the next replica of this one."""
    has = f"{other.name} has {count}"
    if other.priority != own.priority:
        return f"{has} (priority {other.priority}, here {own.priority})"
    if count <= other.least:
        return f"{has} (its least)"
    theirs, here = worth(other)[count - 1], worth(own)[share]
    if theirs == math.inf or own.gains is None:
        return f"{has} (in force, without a prediction)"
    return f"{has} (its last one is worth {theirs:.2g} requests/s in time per accelerator, one more here {here:.2g})"
