"""How evenly the requests in flight are spread over the replicas, measured: what the queueing must know of the router.

Whether a replica is full while its sisters have room depends on who splits the load. A Service draws lots; a gateway
that looks for the emptiest makes the fleet one queue. Which of them is in front is nowhere declared, but it shows.
"""

import math
from dataclasses import replace
from statistics import fmean, variance
from typing import Final

from sluice_operator.decide.trust import Fresh
from sluice_operator.decide.values import Memory

FORGET: Final = 120.0  # seconds; as long as the mean request is remembered
LONGEST: Final = 30.0  # seconds that one look may stand for: after a hole nothing is known at once
SETTLED: Final = 60.0  # seconds until a new replica's share says how requests are split, not when it came
LEAST: Final = 4.0  # requests per replica: of fewer the split cannot be told from chance
BOUNDS: Final = (
    0.05,
    1.0,
)  # nobody splits perfectly; worse than by lot is hot prefixes, which more replicas do not cool


def weigh(memory: Memory, seen: Fresh, now: float) -> Memory:
    """Fold in one look: the index of dispersion of requests in flight over replicas. 1 is a split by lot, near 0 an even
    one; a memory without any look begins at 1."""
    counts = [sample.running + sample.waiting for pod, sample in seen.known if now - pod.since >= SETTLED]
    if len(counts) < 2 or fmean(counts) < LEAST:
        return memory
    low, high = BOUNDS
    unevenness = min(max(variance(counts) / fmean(counts), low), high)
    keep = math.exp(-min(max(0.0, now - memory.uneven_at), LONGEST) / FORGET)
    return replace(memory, unevenness=keep * memory.unevenness + (1.0 - keep) * unevenness, uneven_at=now)
