"""Percentiles and sanity of bucketed histograms, as the contract cuts them."""

import math
from collections.abc import Sequence
from typing import Final

from sluice.contract import LATENCY_BUCKETS
from sluice_operator.decide.values import Histogram

ABSURD: Final = 1e15
BOUNDS: Final = (*LATENCY_BUCKETS, math.inf)


def is_sane_histogram(histogram: Histogram) -> bool:
    """Whether it has the contract's buckets (or none yet) and counts that grow from bucket to bucket."""
    counts = histogram.counts
    if not counts:
        return True
    if histogram.bounds != BOUNDS or len(counts) != len(BOUNDS):
        return False
    # The sum finds a NaN, which no order would.
    return counts[0] >= 0.0 and sum(counts) < ABSURD * len(counts) and sorted(counts) == list(counts)


def overflow(counts: Sequence[float]) -> float:
    """How many of a window's observations lie beyond the last finite bound: how far, nobody can tell."""
    return counts[-1] - counts[-2] if counts else 0.0


def quantile(counts: Sequence[float], share: float) -> float | None:
    """The value that `share` of a window's observations stay under: linear inside its bucket, as PromQL does.
    None without observations; +inf where it lies beyond the last bound."""
    total = counts[-1] if counts else 0.0
    if total <= 0:
        return None
    wanted, low, below = share * total, 0.0, 0.0
    for bound, count in zip(BOUNDS, counts, strict=True):
        if count >= wanted:
            if math.isinf(bound):
                return math.inf
            return low + (bound - low) * ((wanted - below) / (count - below) if count > below else 1.0)
        low, below = bound, count
    return math.inf
