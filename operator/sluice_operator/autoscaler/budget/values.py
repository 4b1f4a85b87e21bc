"""The data types of an accelerator budget. Accelerators are counted in units of one extended resource."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

# Why the budget limits a count, as machine-readable reasons.
BUDGET: Final = "AcceleratorBudget"
BUDGET_INVALID: Final = "AcceleratorBudgetInvalid"
BUDGET_UNKNOWN: Final = "AcceleratorBudgetUnknown"


@dataclass(frozen=True, slots=True)
class Want:
    """What one deployment asks of the budget."""

    name: str
    each: int  # accelerators per replica, 1 or more
    priority: int  # scaling.priority; a higher one is served first
    least: int  # replicas before those of any deployment that are beyond its own least
    count: int  # replicas that the deployment would have without a budget, `least` or more
    current: int  # replicas in force
    # Requests per second that meet the SLO because of the first, second, … of `count` replicas; None: no prediction.
    gains: tuple[float, ...] | None = None


class Shares(Protocol):
    """A division that is kept over passes (division.py)."""

    def shares(self, budget: "Budget", own: Want) -> Mapping[str, int]:
        """Return the replicas per name, for `own` and the others of the budget."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget as one deployment meets it. `others` are the deployments that the operator may scale."""

    name: str  # of the deployment that meets it
    resource: str  # e.g. nvidia.com/gpu
    limit: int  # accelerators
    fixed: int = 0  # accelerators of other deployments whose count the operator does not set
    held: int = 0  # accelerators that the pods of all other deployments hold or are ordered for, draining pods included
    own: int = 0  # the same of this deployment
    others: tuple[Want, ...] = ()
    problem: str = ""  # why the annotation cannot be read, as a sentence
    unobserved: tuple[str, ...] = ()  # deployments of the namespace that this operator has not observed yet
    now: float = 0.0  # seconds, as that of decide()
    division: Shares | None = field(default=None, compare=False)  # None: the budget is divided in this pass

    @property
    def shared(self) -> int:
        """Accelerators that are divided."""
        return max(0, self.limit - self.fixed)

    def available(self, own: Want) -> int:
        """Accelerators for all replicas of this deployment now: neither others nor its own draining pods hold them."""
        beside = max(0, self.own - own.current * own.each)
        return max(0, self.limit - self.held - beside)


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    """The replicas that the budget leaves to one deployment, and why."""

    reason: str
    count: int
    wanted: int
    sentence: str
    numbers: tuple[tuple[str, float], ...] = ()

    @property
    def binds(self) -> bool:
        """Whether the deployment would have more replicas without the budget."""
        return self.count < self.wanted
