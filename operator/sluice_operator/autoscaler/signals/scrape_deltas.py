"""Deltas between two scrapes of one pod, and their sums over the fleet.

Counters are totals since an engine started, so only deltas between two scrapes of one pod have a meaning. A total that
falls means a counter reset (restart), and becomes the new base. The totals of a scrape are packed, buckets in 32 bits
that wrap around, so that 64 engines take 34 kB.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, attrgetter, sub
from struct import Struct
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

# A scrape: its time, the running requests and the columns before the buckets as doubles, then the buckets.
_PACKED: Final = Struct(f"<{2 + _LATE.stop}d{_ITL.stop - _LATE.stop}I")
_WRAP: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class PodTotals:
    """One pod's totals at its newest good scrape: the base of the next delta."""

    name: str
    packed: bytes

    @property
    def at(self) -> float:
        """Monotonic seconds of the scrape."""
        return _PACKED.unpack(self.packed)[0]

    @property
    def running(self) -> float:
        """Requests that ran."""
        return _PACKED.unpack(self.packed)[1]

    def increase(self, old: "PodTotals") -> "array[float]":
        """The columns of a row, less those of an older scrape. A bucket's increase must be under 2³¹."""
        new, before = _PACKED.unpack(self.packed), _PACKED.unpack(old.packed)
        row = array("d", map(sub, new[2:], before[2:]))
        for place in range(_LATE.stop, _ITL.stop):
            row[place] = (row[place] + _WRAP / 2) % _WRAP - _WRAP / 2
        return row


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
    counts = [int(count) % _WRAP for count in (sample.ttft.counts or _NO_COUNTS) + (sample.itl.counts or _NO_COUNTS)]
    totals = (*_counters(sample), shadow.requests, shadow.unreachable, *shadow.late)
    return PodTotals(name, _PACKED.pack(at, sample.running, *totals, *counts))


def pod_delta(old: PodTotals, new: PodTotals, kv_blocks: float, now: float, ttft_target: float) -> FleetDelta | None:
    """One pod's increase, seen at `now`; None where a total fell: the engine restarted.

    `kv_blocks` is the size of its pool. After a long gap only the window's share counts: the rest is older.
    """
    row = new.increase(old)
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
