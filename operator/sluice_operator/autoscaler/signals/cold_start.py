"""Cold start: the time from the order of a replica to ready, per phase, over the last starts of a deployment.

It is how far ahead the growth of the load is planned for, and the Retry-After of a client that finds no
replica. The starts outlive a restart of the operator (`handover`).
"""

from dataclasses import dataclass, replace
from typing import Final

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.freshness import FleetMetrics
from sluice_operator.autoscaler.values import ColdStart, Observed

PHASES: Final = ("schedule", "pull", "fetch", "load", "warm", "total")


@dataclass(frozen=True, slots=True)
class ColdStartState:
    """The measured cold starts of a deployment."""

    starts: tuple[tuple[str, ColdStart], ...] = ()  # (pod, duration of its start), newest last
    recorded: tuple[str, ...] | None = None  # present pods whose start is or was in `starts`; None: first call


def record_cold_starts(state: ColdStartState, observed: Observed) -> ColdStartState:
    """Record each pod's start once and keep the newest; an invalid one is left out.

    `recorded` lists a pod as long as it exists: in a large fleet its start may be dropped earlier.
    """
    known = {name for name, _ in state.starts} | set(state.recorded or ())
    new = [
        (pod.name, pod.cold_start)
        for pod in observed.pods
        if pod.cold_start is not None and pod.name not in known and is_valid_start(pod.cold_start)
    ]
    known |= {name for name, _ in new}
    recorded = tuple(sorted(pod.name for pod in observed.pods if pod.name in known))
    # A predecessor's starts are the newest of its fleet: starts that it no longer lists are older.
    starts = (*new, *state.starts) if state.recorded is None else (*state.starts, *new)
    return replace(state, starts=starts[-LAW.cold_starts_kept :], recorded=recorded)


def is_valid_start(start: ColdStart) -> bool:
    """Whether all its numbers are valid: NaN compares false with everything."""
    return all(0.0 <= getattr(start, phase) <= LAW.starting_most_seconds for phase in PHASES)


def planned_seconds(state: ColdStartState) -> float | None:
    """The planned duration of a start, in seconds: a high quantile of the totals; None where none was measured.

    Between two starts it is the lower one, because the very first start pulled the image.
    """
    totals = sorted(start.total for _, start in state.starts)
    return totals[int(LAW.cold_start_quantile * (len(totals) - 1))] if totals else None


def expected_seconds(state: ColdStartState) -> float:
    """The planned duration of a start, or the usual one where none was measured, in seconds."""
    return planned_seconds(state) or LAW.usual_cold_start_seconds


def median_start(state: ColdStartState) -> ColdStart | None:
    """The median start by its total, with its phases; None where none was measured."""
    starts = sorted((start for _, start in state.starts), key=lambda start: start.total)
    return starts[(len(starts) - 1) // 2] if starts else None


def remaining_seconds(state: ColdStartState, fleet: FleetMetrics, now: float) -> float | None:
    """Seconds until the next starting replica should serve; None where none is starting.

    A start that takes longer than expected is looked at again after a scrape interval.
    """
    if not fleet.starting:
        return None
    ages = [max(now - pod.since if pod.start_age is None else pod.start_age, 0.0) for pod in fleet.starting]
    return max(expected_seconds(state) - max(ages), LAW.usual_scrape_seconds)
