"""Load balance: the measured split of requests in flight over the replicas, an input of the queueing model.

Whether one replica is full while others have room depends on the router. A Service splits at random; a gateway that
chooses the emptiest replica makes the fleet one queue. The spec does not declare the router, but the split shows it.
"""

import math
from dataclasses import replace
from statistics import fmean, variance
from typing import Final

from sluice_operator.autoscaler.signals.freshness import Fresh
from sluice_operator.autoscaler.state import AutoscalerState

FORGET: Final = 120.0  # seconds, time constant; the same as for the mean request
LONGEST: Final = 30.0  # seconds that one observation may stand for: one after a gap must not replace the estimate
SETTLED: Final = 60.0  # seconds after which a new replica's share reflects the split and no longer its start
LEAST: Final = 4.0  # requests per replica: with fewer the split cannot be distinguished from chance
BOUNDS: Final = (0.05, 1.0)  # no split is perfect; above random are hot prefixes, which more replicas do not cool


def weigh(memory: AutoscalerState, seen: Fresh, now: float) -> AutoscalerState:
    """Fold in one observation: the index of dispersion of requests in flight over replicas.

    1 is a random split, near 0 an even one; a memory without any observation starts at 1.
    """
    counts = [sample.running + sample.waiting for pod, sample in seen.known if now - pod.since >= SETTLED]
    if len(counts) < 2 or fmean(counts) < LEAST:
        return memory
    low, high = BOUNDS
    unevenness = min(max(variance(counts) / fmean(counts), low), high)
    keep = math.exp(-min(max(0.0, now - memory.uneven_at), LONGEST) / FORGET)
    return replace(memory, unevenness=keep * memory.unevenness + (1.0 - keep) * unevenness, uneven_at=now)
