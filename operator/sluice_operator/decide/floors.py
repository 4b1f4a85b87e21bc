"""Between which counts the law may choose now: minReplicas, what schedules add, and when none at all is allowed."""

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from sluice_operator.api import LLMDeploymentSpec, Schedule
from sluice_operator.api.cron import newest
from sluice_operator.decide.values import Observed


@dataclass(frozen=True, slots=True)
class Range:
    """The fewest and the most replicas now, and in words which schedule made the fewest more than minReplicas."""

    low: int
    high: int
    schedule: str = ""

    def inside(self, count: int) -> int:
        """The nearest count that is allowed."""
        return min(max(count, self.low), self.high)


def allowed(spec: LLMDeploymentSpec, observed: Observed, lead: float) -> Range:
    """The range at this moment. A schedule's replicas are ordered `lead` seconds early, a cold start, so that they serve
    when it begins. Zero only where a front door holds requests: without one nobody could wake the model."""
    scaling = spec.scaling
    low = scaling.min_replicas if observed.held is not None else max(1, scaling.min_replicas)
    words = ""
    for one in scaling.schedules:
        ends = None if observed.wall is None else _ends(one, observed.wall, lead)
        if ends is not None and one.min_replicas > low:
            low = one.min_replicas
            until = datetime.fromtimestamp(ends, UTC).astimezone(ZoneInfo(one.timezone))
            words = f"the schedule {one.cron} asks for {low} until {until:%a %H:%M} ({one.timezone})"
    return Range(low, max(low, scaling.max_replicas), words)


def _ends(schedule: Schedule, wall: float, lead: float) -> float | None:
    """When the window that is on now, or begins within `lead`, ends; None where none is."""
    begun = newest(schedule.cron, schedule.timezone, wall + lead)
    ends = None if begun is None else begun + schedule.duration_seconds
    return ends if ends is not None and wall < ends else None
