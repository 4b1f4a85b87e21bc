"""The arrivals of the last half hour, in time slots.

Each pod's delta between two scrapes is spread over the time between them. A lost scrape then moves no request into
another slot, and pods that are scraped at different instants add up.
"""

import math
from collections.abc import Iterable
from typing import Final

WIDTH: Final = 10.0  # seconds per slot: two scrapes at 5 s
KEPT: Final = 180  # slots: half an hour, many cold starts

Slots = tuple[tuple[int, float], ...]  # (slot index, requests that arrived in it), oldest first


def book(slots: Slots, growths: Iterable[tuple[float, float, float]], now: float) -> Slots:
    """Add arrivals, (from, to, count) per pod. Slots without a measurement stay absent. O(KEPT) per pod."""
    counts = dict(slots)
    for begun, ended, count in growths:
        first, last = math.floor(begun / WIDTH), math.floor(ended / WIDTH)
        for slot in range(max(first, last - KEPT), last + 1):
            overlap = min(ended, (slot + 1) * WIDTH) - max(begun, slot * WIDTH)
            counts[slot] = counts.get(slot, 0.0) + count * max(overlap, 0.0) / max(ended - begun, 1e-9)
    newest = math.floor(now / WIDTH)
    return tuple(sorted([one for one in counts.items() if newest - KEPT < one[0] <= newest]))
