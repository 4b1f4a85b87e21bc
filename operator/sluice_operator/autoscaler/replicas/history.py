"""The recent past: what each load would have made late by the engines' shadow queues, and what came.

Slots of the last quarter of an hour answer how many replicas would have been enough; five-minute comparisons of the last
hour tell by how much the replay is wrong; counts of arrivals show the trend.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log
from operator import add
from typing import Final

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.scrape_deltas import FleetDelta
from sluice_perfmodel.shadow_queues import LOADS

_LOGS: Final = tuple(log(load) for load in LOADS)
_COMPARISONS: Final = 12  # per `error_seconds`


@dataclass(frozen=True, slots=True)
class Slot:
    """A part of the past in which `replicas` were ready. Times in seconds."""

    begun: float
    ended: float
    replicas: int
    requests: float
    unreachable: float  # late even alone
    lateness: "array[float]"  # requests late by the shadow queues, per load of LOADS

    @property
    def reachable(self) -> float:
        """Requests that some number of replicas serves in time."""
        return self.requests - self.unreachable

    @property
    def floor(self) -> float:
        """Requests that even the largest fleet of the replay makes late."""
        return self.lateness[0]

    def late(self, replicas: float) -> float:
        """Requests that so many replicas would have made late: linear in the logarithm of the load.

        Beyond the loads that the engines replay, more replicas make none late, and fewer serve no more requests than at
        the highest load."""
        load, late = self.replicas / replicas, self.lateness
        if load < LOADS[0] * (1.0 - 1e-9):
            return 0.0
        if load >= LOADS[-1]:
            return max(0.0, self.reachable - max(0.0, self.reachable - late[-1]) * LOADS[-1] / load)
        place = max(1, bisect_right(_LOGS, log(load)))
        low, high = _LOGS[place - 1], _LOGS[place]
        share = (log(load) - low) / (high - low)
        return late[place - 1] + (late[place] - late[place - 1]) * max(0.0, share)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Some minutes: what the replay predicts for the replicas that were ready, and what came."""

    begun: float
    ended: float
    requests: float
    unreachable: float
    lateness: "array[float]"  # per load of LOADS; 1 is the load that came
    missed: float


@dataclass(frozen=True, slots=True)
class History:
    """The past that the rules read; bounded. Times are monotonic seconds."""

    slots: tuple[Slot, ...] = ()  # oldest first
    comparisons: tuple[Comparison, ...] = ()
    arrivals: tuple[tuple[float, float], ...] = ()  # (end of a bin, requests per second), oldest first
    counted: tuple[float, float] = (0.0, 0.0)  # (begin of the bin that is counted, its requests so far)
    ready: int = 0
    ready_since: float = 0.0  # when the number of ready replicas changed last, or was seen first
    seen_at: float = 0.0
    restored: int = 0  # replicas that a predecessor remembered …
    restored_at: float = 0.0  # … and since when that counts

    def without_measurements(self, now: float) -> "History":
        """The history of a clock that began anew: only what is remembered counts, for as long as a memory lasts."""
        return History(
            counted=(now, 0.0),
            ready_since=now,
            restored=self.restored,
            restored_at=now,
            seen_at=now,
        )


def extended(past: History, delta: FleetDelta | None, ready: int, memory: float, now: float) -> History:
    """The history with the newest scrapes, at which `ready` replicas were ready. `memory` is in seconds.

    Scrapes right after a change of the fleet are left out of the slots: the shadow queues still hold the requests of the
    fleet before. Counted, they order twice the replicas that a start under overload needs. A replica whose readiness
    flaps must not empty the memory: once scrapes of half of `rise_seconds` were left out, the next one counts."""
    ready_since = now if ready != past.ready and past.ready else past.ready_since
    slots, comparisons = past.slots, past.comparisons
    if delta is not None and ready:
        left_out = past.seen_at - slots[-1].ended if slots else inf
        if now - ready_since > LAW.usual_scrape_seconds or left_out > LAW.rise_seconds / 2.0:
            slots = (*slots, _slot(past.seen_at, now, ready, delta))
        if now - ready_since > LAW.settled_seconds:
            comparisons = _with_comparison(comparisons, _comparison(past.seen_at, now, delta))
    past = _count_arrivals(past, 0.0 if delta is None else delta.increase("arrived_total"), now)
    return replace(
        past,
        slots=_merged(slots, memory, now),
        comparisons=tuple([one for one in comparisons if one.ended > now - LAW.error_seconds]),
        ready=ready,
        ready_since=ready_since,
        seen_at=now,
    )


def between(slots: Sequence[Slot], begin: float, end: float) -> tuple[Slot, ...]:
    """The slots that ended in (begin, end]."""
    return tuple([slot for slot in slots if begin < slot.ended <= end])


def late_at(slots: Sequence[Slot], replicas: float, load: float = 1.0) -> float:
    """Requests that `replicas` would have made late at `load` times the load."""
    return sum([slot.late(replicas / load) for slot in slots])


def _slot(begun: float, now: float, ready: int, delta: FleetDelta) -> Slot:
    return Slot(begun, now, ready, delta.increase("shadow_requests"), delta.increase("shadow_unreachable"), delta.late)


def _merged(slots: Sequence[Slot], memory: float, now: float) -> tuple[Slot, ...]:
    """The slots of the last `memory` seconds, adjacent ones of the same fleet merged: those of the last minute to
    `slot_seconds`, older ones to a minute, because only their sum is asked for."""
    kept: list[Slot] = []
    for slot in slots:
        if slot.ended <= now - memory:
            continue
        width = LAW.slot_seconds if slot.ended > now - LAW.rise_seconds else LAW.rise_seconds
        if kept and kept[-1].replicas == slot.replicas and slot.ended - kept[-1].begun <= width:
            last = kept[-1]
            kept[-1] = Slot(
                last.begun,
                slot.ended,
                slot.replicas,
                last.requests + slot.requests,
                last.unreachable + slot.unreachable,
                array("d", map(add, last.lateness, slot.lateness)),
            )
        else:
            kept.append(slot)
    return tuple(kept)


def _comparison(begun: float, now: float, delta: FleetDelta) -> Comparison:
    missed = delta.increase("slo_missed_total") + delta.increase("failed_total") + delta.increase("rejected_total")
    return Comparison(
        begun,
        now,
        delta.increase("shadow_requests"),
        delta.increase("shadow_unreachable"),
        delta.late,
        missed - delta.increase("offered_again_total"),
    )


def _with_comparison(comparisons: tuple[Comparison, ...], new: Comparison) -> tuple[Comparison, ...]:
    last = comparisons[-1] if comparisons else None
    if last is None or new.ended - last.begun > LAW.error_seconds / _COMPARISONS:
        return (*comparisons, new)
    merged = Comparison(
        last.begun,
        new.ended,
        last.requests + new.requests,
        last.unreachable + new.unreachable,
        array("d", map(add, last.lateness, new.lateness)),
        last.missed + new.missed,
    )
    return (*comparisons[:-1], merged)


def _count_arrivals(past: History, requests: float, now: float) -> History:
    """Close the bin that is counted once it is long enough."""
    begun, counted = past.counted
    counted += requests
    if now - begun < LAW.bin_seconds:
        return replace(past, counted=(begun, counted))
    kept = [one for one in past.arrivals if one[0] > now - 2.0 * LAW.trend_seconds]
    return replace(past, arrivals=(*kept, (now, counted / (now - begun))), counted=(now, 0.0))
