"""Percentiles and validity of bucketed histograms with the contract's buckets."""

import math
from collections.abc import Sequence
from typing import Final

from sluice.contract import LATENCY_BUCKETS
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.values import Histogram

BOUNDS: Final = (*LATENCY_BUCKETS, math.inf)


def is_valid_histogram(histogram: Histogram) -> bool:
    """Whether it has the contract's buckets (or none yet) and counts that do not decrease from bucket to bucket."""
    counts = histogram.counts
    if not counts:
        return True
    if histogram.bounds != BOUNDS or len(counts) != len(BOUNDS):
        return False
    # The sum detects a NaN, which sorting would not.
    return counts[0] >= 0.0 and sum(counts) < LAW.largest_value * len(counts) and sorted(counts) == list(counts)


def overflow(counts: Sequence[float]) -> float:
    """Number of a window's observations beyond the last finite bound; their values are unknown."""
    return counts[-1] - counts[-2] if counts else 0.0


def quantile(counts: Sequence[float], share: float) -> float | None:
    """The value that a `share` of a window's observations stays under: linear inside its bucket, as in PromQL.

    None without observations; +inf where it lies beyond the last bound.
    """
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
