"""The window: the fleet's deltas over the last half minute, and their sums.

A first token beyond the last bucket misses any target within the buckets, whatever the engine has counted so far: the
engine counts a request at its end, which may be minutes later. The window's misses are therefore the larger of the
engines' count and the overflow. An inter-token time beyond the last bucket is left to the engines' own count, because
the target is for a request's mean, which no bucket of single tokens shows.
"""

import math
from array import array
from dataclasses import dataclass, replace
from typing import Final

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.scrape_deltas import FleetDelta, PodTotals, merge, sum_rows

_MISSED: Final = "slo_missed_total"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Requests by outcome: good, late or failed, and rejected by all replicas."""

    met: float
    late: float
    rejected: float

    @property
    def missed(self) -> float:
        """Requests that missed the SLO."""
        return self.late + max(0.0, self.rejected)


@dataclass(frozen=True, slots=True)
class WindowState:
    """The deltas of the window, and the totals that the next ones are taken from."""

    pods: tuple[PodTotals, ...] = ()
    deltas: tuple[FleetDelta, ...] = ()  # oldest first
    scrape_gap: float | None = None  # seconds between the two newest scrapes of one pod
    reset_until: float = 0.0  # until then, a counter reset hides load


@dataclass(frozen=True, slots=True)
class WindowSums:
    """The fleet's deltas over a window. Each sum is computed on access, because a rule needs one or two of them."""

    deltas: tuple[FleetDelta, ...] = ()  # oldest first

    @property
    def seconds(self) -> float:
        """Time that the deltas span."""
        return self.deltas[-1].at - self.deltas[0].at + self.deltas[0].seconds if self.deltas else 0.0

    def count(self, name: str) -> float:
        """Increase of a counter of `COUNTERS`; for SLO misses the larger of the count and the overdue first tokens."""
        increase = math.fsum([delta.increase(name) for delta in self.deltas])
        return max(increase, self.overdue) if name == _MISSED else increase

    def rate(self, name: str) -> float:
        """Increase per second."""
        seconds = self.seconds
        return self.count(name) / seconds if seconds > 0 else 0.0

    @property
    def outcome(self) -> Outcome:
        """Requests by outcome.

        A gateway offers a request that one replica rejects to the next, and each rejection counts. Rejections less
        those offered again are the requests that no replica served. Two engines count the two, possibly in two deltas,
        so over one delta the difference may be negative.
        """
        late = self.count(_MISSED) + self.count("failed_total")
        return Outcome(
            self.count("slo_met_total"), late, self.count("rejected_total") - self.count("offered_again_total")
        )

    @property
    def block_seconds(self) -> float:
        """Blocks of the pools × seconds."""
        return sum(delta.block_seconds for delta in self.deltas)

    @property
    def ttft(self) -> "array[float]":
        """Cumulative counts per bucket; empty without observations."""
        return sum_rows([delta.ttft for delta in self.deltas])

    @property
    def itl(self) -> "array[float]":
        """Cumulative counts of inter-token times per bucket; empty without observations."""
        return sum_rows([delta.itl for delta in self.deltas])

    @property
    def overdue(self) -> float:
        """First tokens beyond the last bucket, where that is a miss."""
        return sum(delta.overdue for delta in self.deltas)


def window_sums(state: WindowState, now: float, seconds: float) -> WindowSums:
    """The sums over the last `seconds`."""
    oldest = now - seconds
    return WindowSums(tuple([delta for delta in state.deltas if delta.at > oldest]))


def append(deltas: tuple[FleetDelta, ...], delta: FleetDelta) -> tuple[FleetDelta, ...]:
    """Add a delta, or extend the last one by it where both are short."""
    if not deltas:
        return (delta,)
    last = deltas[-1]
    seconds = delta.at - (last.at - last.seconds)
    if seconds > LAW.delta_seconds:
        return (*deltas, delta)
    return (*deltas[:-1], replace(merge([last, delta]), seconds=seconds))
