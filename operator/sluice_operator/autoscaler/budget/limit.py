"""The replicas that the budget leaves to one deployment now.

A share is reached in two steps, so that the budget is never exceeded: deployments above theirs scale in at once, and
the others grow as far as the accelerators of terminated pods have become free.
"""

from sluice_operator.autoscaler.budget.share import share
from sluice_operator.autoscaler.budget.values import (
    BUDGET,
    BUDGET_INVALID,
    BUDGET_UNKNOWN,
    Budget,
    BudgetLimit,
    Want,
)
from sluice_operator.autoscaler.explain import budget as explain


def budget_limit(budget: Budget | None, own: Want) -> BudgetLimit | None:
    """Return the limit of a deployment; None where no budget limits it.

    While the budget is unknown, the count in force stays the limit: a typing error or a restart of the operator neither
    stops replicas that serve nor takes accelerators beyond a budget.
    """
    if budget is None:
        return None
    if budget.problem:
        return BudgetLimit(BUDGET_INVALID, own.current, own.count, explain.invalid(budget, own))
    if budget.unobserved:
        if own.count <= own.current:
            return None
        return BudgetLimit(BUDGET_UNKNOWN, own.current, own.count, explain.unobserved(budget, own))
    division = budget.division
    shares = share(budget.shared, (*budget.others, own)) if division is None else division.shares(budget, own)
    count = min(shares[own.name], max(budget.available(own) // own.each, own.current))
    if count >= own.count:
        return None
    numbers = (
        ("budgetAccelerators", float(budget.limit)),
        ("budgetShare", float(shares[own.name])),
        ("acceleratorsOfOthers", float(budget.held)),
        ("neededReplicas", float(own.count)),
    )
    return BudgetLimit(BUDGET, count, own.count, explain.limited(budget, own, shares, count), numbers)
