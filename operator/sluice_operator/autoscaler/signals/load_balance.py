"""Load balance: the measured split of requests in flight over the replicas, an input of the queueing model.

Whether one replica is full while others have room depends on the router. A Service splits at random; a gateway that
chooses the emptiest replica makes the fleet one queue. The spec does not declare the router, but the split shows it.
"""

import math
from dataclasses import dataclass
from statistics import fmean, variance

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.freshness import FleetMetrics


@dataclass(frozen=True, slots=True)
class LoadBalanceState:
    """The smoothed index of dispersion of requests in flight over replicas: 1 is a random split, near 0 an even one."""

    unevenness: float = 1.0
    updated_at: float = 0.0


def update_unevenness(state: LoadBalanceState, fleet: FleetMetrics, now: float) -> LoadBalanceState:
    """Fold in one observation, where enough replicas have enough requests."""
    settings = LAW.signals
    settled = settings.unevenness_settled_seconds
    counts = [sample.running + sample.waiting for pod, sample in fleet.measured if now - pod.since >= settled]
    if len(counts) < 2 or fmean(counts) < settings.unevenness_least_requests:
        return state
    low, high = settings.unevenness_bounds
    observed = min(max(variance(counts) / fmean(counts), low), high)
    seconds = min(max(0.0, now - state.updated_at), settings.unevenness_longest_seconds)
    keep = math.exp(-seconds / settings.unevenness_seconds)
    return LoadBalanceState(keep * state.unevenness + (1.0 - keep) * observed, now)
