"""The range of replica counts that the law may choose from: minReplicas, schedules, maxReplicas and scale to zero."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from sluice_operator.api import LLMDeploymentSpec, Schedule
from sluice_operator.api.cron import newest, zone_of
from sluice_operator.autoscaler.budget.values import BudgetLimit
from sluice_operator.autoscaler.values import Observed


@dataclass(frozen=True, slots=True)
class ReplicaRange:
    """The fewest and the most replicas now. `schedule` describes the schedule that raised `low` above minReplicas, and
    `budget` is the accelerator budget that lowered `high`."""

    low: int
    high: int
    schedule: str = ""
    budget: BudgetLimit | None = None

    def inside(self, count: int) -> int:
        """The nearest count inside the range."""
        return min(max(count, self.low), self.high)

    def limited(self, budget: BudgetLimit | None) -> "ReplicaRange":
        """The range within an accelerator budget, which is stronger than minReplicas and schedules."""
        if budget is None:
            return self
        return replace(self, low=min(self.low, budget.count), high=min(self.high, budget.count), budget=budget)


def replica_range(spec: LLMDeploymentSpec, observed: Observed, lead: float) -> ReplicaRange:
    """The range at this moment.

    A schedule's replicas are ordered `lead` seconds early, one cold start, so that they serve when it begins. Zero is
    allowed only where a gateway holds requests: without one no request could wake the model.
    """
    scaling = spec.scaling
    low = scaling.min_replicas if observed.held is not None else max(1, scaling.min_replicas)
    words = ""
    for one in scaling.schedules:
        zone = zone_of(one.timezone)
        if observed.wall is None or zone is None:
            continue
        ends = _ends(one, zone, observed.wall, lead)
        if ends is not None and one.min_replicas > low:
            low = one.min_replicas
            until = datetime.fromtimestamp(ends, UTC).astimezone(zone)
            words = f"the schedule {one.cron} asks for {low} until {until:%a %H:%M} ({one.timezone})"
    return ReplicaRange(low, max(low, scaling.max_replicas), words)


def _ends(schedule: Schedule, zone: ZoneInfo, wall: float, lead: float) -> float | None:
    """End of the schedule window that is active now or begins within `lead` seconds; None where there is none."""
    begun = newest(schedule.cron, zone, wall + lead)
    ends = None if begun is None else begun + schedule.duration_seconds
    return ends if ends is not None and wall < ends else None
