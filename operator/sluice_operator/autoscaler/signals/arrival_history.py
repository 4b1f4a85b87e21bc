"""The arrivals of the last half hour, in time slots.

Each pod's delta between two scrapes is spread over the time between them. A lost scrape then moves no request into
another slot, and pods that are scraped at different instants add up.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from sluice_operator.autoscaler.settings import LAW
from sluice_perfmodel.arrival_stats import ArrivalStats

Slots = tuple[tuple[int, float], ...]  # (slot index, requests that arrived in it), oldest first


@dataclass(frozen=True, slots=True)
class ArrivalState:
    """The arrivals by slot, and the arrival statistics that an earlier operator process has measured."""

    slots: Slots = ()
    prior: ArrivalStats = field(default_factory=ArrivalStats)


def add_arrivals(slots: Slots, arrivals: Iterable[tuple[float, float, float]], now: float) -> Slots:
    """Add arrivals, (from, to, count) per pod. Slots without a measurement stay absent. O(slots kept) per pod."""
    width, kept = LAW.signals.slot_seconds, LAW.signals.slots_kept
    counts = dict(slots)
    for begun, ended, count in arrivals:
        first, last = math.floor(begun / width), math.floor(ended / width)
        for slot in range(max(first, last - kept), last + 1):
            overlap = min(ended, (slot + 1) * width) - max(begun, slot * width)
            counts[slot] = counts.get(slot, 0.0) + count * max(overlap, 0.0) / max(ended - begun, 1e-9)
    newest = math.floor(now / width)
    return tuple(sorted([one for one in counts.items() if newest - kept < one[0] <= newest]))
