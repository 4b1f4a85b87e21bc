"""Deltas between two scrapes of one pod, and their sums over the fleet.

Counters are totals since an engine started, so only deltas between two scrapes of one pod have a meaning. A total that
falls means a counter reset (restart), and becomes the new base. All totals of a scrape are one row of numbers, so that a
delta is one subtraction and 64 engines take 40 kB.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, attrgetter, sub
from typing import Final

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.freshness import COUNTERS
from sluice_operator.autoscaler.signals.histograms import BOUNDS, overflow
from sluice_operator.autoscaler.values import EngineSample, ShadowTotals
from sluice_perfmodel.shadow_queues import LOADS

# The columns of a row: the counters, the shadow queues, and the cumulative counts per bucket.
_PLACES: Final = {name: place for place, name in enumerate((*COUNTERS, "shadow_requests", "shadow_unreachable"))}
_LATE: Final = slice(len(_PLACES), len(_PLACES) + len(LOADS))
_TTFT: Final = slice(_LATE.stop, _LATE.stop + len(BOUNDS))
_ITL: Final = slice(_TTFT.stop, _TTFT.stop + len(BOUNDS))
_NO_COUNTS: Final = (0.0,) * len(BOUNDS)
_NO_SHADOW: Final = ShadowTotals(0.0, 0.0, (0.0,) * len(LOADS))
_counters: Final = attrgetter(*COUNTERS)


@dataclass(frozen=True, slots=True)
class PodTotals:
    """One pod's totals at its newest good scrape: the base of the next delta."""

    name: str
    at: float  # monotonic seconds of the scrape
    row: "array[float]"
    running: float


@dataclass(frozen=True, slots=True)
class FleetDelta:
    """The increase of the whole fleet's totals between two looks: the sum of its pods' deltas."""

    at: float
    seconds: float
    row: "array[float]"
    block_seconds: float  # pool blocks × seconds that those deltas span
    overdue: float = 0.0  # first tokens later than the last bucket and than the target of that moment

    def increase(self, name: str) -> float:
        """Increase of a counter of `COUNTERS`, of shadow_requests or of shadow_unreachable."""
        return self.row[_PLACES[name]]

    @property
    def late(self) -> "array[float]":
        """Requests that the shadow queues made late, per load of LOADS."""
        return self.row[_LATE]

    @property
    def ttft(self) -> "array[float]":
        """First tokens, cumulative counts per bucket."""
        return self.row[_TTFT]

    @property
    def itl(self) -> "array[float]":
        """Inter-token times, cumulative counts per bucket."""
        return self.row[_ITL]


def pod_totals(name: str, at: float, sample: EngineSample) -> PodTotals:
    """The totals of one scrape; a histogram or shadow queues without observations count as zeros."""
    shadow = sample.shadow or _NO_SHADOW
    counts = (sample.ttft.counts or _NO_COUNTS) + (sample.itl.counts or _NO_COUNTS)
    values = (*_counters(sample), shadow.requests, shadow.unreachable, *shadow.late, *counts)
    return PodTotals(name, at, array("d", values), sample.running)


def pod_delta(old: PodTotals, new: PodTotals, kv_blocks: float, now: float, ttft_target: float) -> FleetDelta | None:
    """One pod's increase, seen at `now`; None where a total fell: the engine restarted.

    `kv_blocks` is the size of its pool. After a long gap only the window's share counts: the rest is older.
    """
    row = array("d", map(sub, new.row, old.row))
    least = min(row)
    if least < -1e-9:
        return None
    span = new.at - old.at
    share = min(1.0, LAW.window_seconds / span)
    if least < 0.0 or share < 1.0:
        row = array("d", [share * max(0.0, value) for value in row])
    overdue = overflow(row[_TTFT]) if ttft_target <= BOUNDS[-2] else 0.0
    return FleetDelta(now, span * share, row, kv_blocks * span * share, overdue)


def merge(deltas: Sequence[FleetDelta]) -> FleetDelta:
    """The sum of deltas, at the time of the last one and over the longest of their spans."""
    return FleetDelta(
        at=deltas[-1].at,
        seconds=max(delta.seconds for delta in deltas),
        row=sum_rows([delta.row for delta in deltas]),
        block_seconds=sum(delta.block_seconds for delta in deltas),
        overdue=sum(delta.overdue for delta in deltas),
    )


def sum_rows(rows: Sequence["array[float]"]) -> "array[float]":
    """The sum of each column; empty without rows."""
    if not rows:
        return array("d")
    total = rows[0]
    for row in rows[1:]:
        total = array("d", map(add, total, row))
    return total
