"""The window: the fleet's deltas over the last half minute, and their sums.

A first token beyond the last bucket misses any target within the buckets, whatever the engine has counted so far: the
engine counts a request at its end, which may be minutes later. The window's misses are therefore the larger of the
engines' count and the overflow. An inter-token time beyond the last bucket is left to the engines' own count, because
the target is for a request's mean, which no bucket of single tokens shows.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.error_budget import Outcome
from sluice_operator.autoscaler.signals.freshness import COUNTERS
from sluice_operator.autoscaler.signals.scrape_deltas import FleetDelta, PodTotals, merge, sum_rows

_MET, _MISSED = COUNTERS.index("slo_met_total"), COUNTERS.index("slo_missed_total")
_FAILED, _REJECTED, _AGAIN = (COUNTERS.index(f"{name}_total") for name in ("failed", "rejected", "offered_again"))
_MISSED_NAME: Final = "slo_missed_total"


@dataclass(frozen=True, slots=True)
class WindowState:
    """The deltas of the window, and the totals that the next ones are taken from."""

    pods: tuple[PodTotals, ...] = ()
    deltas: tuple[FleetDelta, ...] = ()  # oldest first
    scrape_gap: float | None = None  # smoothed seconds between two scrapes of one pod
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
        increase = self._increase(COUNTERS.index(name))
        return max(increase, self.overdue) if name == _MISSED_NAME else increase

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
        late = self.count(_MISSED_NAME) + self._increase(_FAILED)
        return Outcome(self._increase(_MET), late, self._increase(_REJECTED) - self._increase(_AGAIN))

    @property
    def block_seconds(self) -> float:
        """Blocks of the pools × seconds."""
        return sum(delta.block_seconds for delta in self.deltas)

    @property
    def ttft(self) -> tuple[float, ...]:
        """Cumulative counts per bucket; empty without observations."""
        return sum_rows([delta.ttft for delta in self.deltas])

    @property
    def itl(self) -> tuple[float, ...]:
        """Cumulative counts of inter-token times per bucket; empty without observations."""
        return sum_rows([delta.itl for delta in self.deltas])

    @property
    def overdue(self) -> float:
        """First tokens beyond the last bucket, where that is a miss."""
        return sum(delta.overdue for delta in self.deltas)

    def _increase(self, place: int) -> float:
        return math.fsum([delta.counters[place] for delta in self.deltas])


def window_sums(state: WindowState, now: float, seconds: float) -> WindowSums:
    """The sums over the last `seconds`."""
    oldest = now - seconds
    return WindowSums(tuple([delta for delta in state.deltas if delta.at > oldest]))


def engines_outcome(delta: FleetDelta) -> Outcome:
    """The outcomes by the engines' own counts: an overdue request is counted once, when it ends."""
    sums = delta.counters
    return Outcome(sums[_MET], sums[_MISSED] + sums[_FAILED], sums[_REJECTED] - sums[_AGAIN])


def append(deltas: tuple[FleetDelta, ...], delta: FleetDelta) -> tuple[FleetDelta, ...]:
    """Add a delta, or merge it into the last one where they are too close to be kept apart."""
    if not deltas or delta.at - deltas[-1].at >= LAW.signals.delta_seconds:
        return (*deltas, delta)
    last = deltas[-1]
    return (*deltas[:-1], replace(merge([last, delta]), at=last.at, seconds=last.seconds))
