"""The recent past in slots: what each load would have made late, by the engines' shadow queues, and what came."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Final

from sluice_operator.autoscaler.values import EngineSample
from sluice_perfmodel.shadow_queues import LOADS

_LOGS: Final = tuple(log(load) for load in LOADS)


@dataclass(frozen=True, slots=True)
class Delta:
    """The increase of a fleet's counters, in requests."""

    requests: float = 0.0
    unreachable: float = 0.0  # late even alone
    late: tuple[float, ...] = (0.0,) * len(LOADS)
    met: float = 0.0
    missed: float = 0.0

    def plus(self, other: "Delta") -> "Delta":
        """The sum."""
        return Delta(
            self.requests + other.requests,
            self.unreachable + other.unreachable,
            tuple(a + b for a, b in zip(self.late, other.late, strict=True)),
            self.met + other.met,
            self.missed + other.missed,
        )


@dataclass(frozen=True, slots=True)
class Slot:
    """A part of the past in which `replicas` were ready. Times in seconds."""

    begun: float
    ended: float
    replicas: int
    settled: bool  # the fleet had not changed for a while: its misses are its own
    delta: Delta

    @property
    def reachable(self) -> float:
        """Requests that some number of replicas serves in time."""
        return self.delta.requests - self.delta.unreachable

    @property
    def floor(self) -> float:
        """Requests that even the largest fleet of the replay makes late."""
        return self.delta.late[0]

    def late(self, replicas: float) -> float:
        """Requests that so many replicas would have made late: linear in the logarithm of the load.

        Beyond the loads that the engines replay, more replicas make none late, and fewer serve no more requests than at
        the highest load."""
        load, late = self.replicas / replicas, self.delta.late
        if load < LOADS[0] * (1.0 - 1e-9):
            return 0.0
        if load >= LOADS[-1]:
            return max(0.0, self.reachable - max(0.0, self.reachable - late[-1]) * LOADS[-1] / load)
        place = max(1, bisect_right(_LOGS, log(load)))
        low, high = _LOGS[place - 1], _LOGS[place]
        share = (log(load) - low) / (high - low)
        return late[place - 1] + (late[place] - late[place - 1]) * max(0.0, share)


Slots = tuple[Slot, ...]  # oldest first


def extended(slots: Slots, new: Slot, width: float, memory: float) -> Slots:
    """The slots with a new piece of the past, merged into the last one while that is short and of the same fleet."""
    kept = tuple(slot for slot in slots if slot.ended > new.ended - memory)
    last = kept[-1] if kept else None
    same = last is not None and (last.replicas, last.settled) == (new.replicas, new.settled)
    if last is None or not same or new.ended - last.begun > width:
        return (*kept, new)
    return (*kept[:-1], replace(last, ended=new.ended, delta=last.delta.plus(new.delta)))


def between(slots: Slots, begin: float, end: float) -> Slots:
    """The slots that ended in (begin, end]."""
    return tuple(slot for slot in slots if begin < slot.ended <= end)


def increase(before: EngineSample | None, now: EngineSample) -> Delta:
    """What one engine counted between two scrapes; nothing at its first scrape, or after a restart."""
    if before is None or before.shadow is None or now.shadow is None or now.arrived_total < before.arrived_total:
        return Delta()
    old, new = before.shadow, now.shadow
    return Delta(
        new.requests - old.requests,
        new.unreachable - old.unreachable,
        tuple(b - a for a, b in zip(old.late, new.late, strict=True)),
        now.slo_met_total - before.slo_met_total,
        _missed(now) - _missed(before),
    )


def total(deltas: Iterable[Delta]) -> Delta:
    """The sum of deltas."""
    found = Delta()
    for one in deltas:
        found = found.plus(one)
    return found


def late_at(slots: Sequence[Slot], replicas: float, load: float = 1.0) -> float:
    """Requests that `replicas` would have made late at `load` times the load."""
    return sum(slot.late(replicas / load) for slot in slots)


def _missed(sample: EngineSample) -> float:
    return sample.slo_missed_total + sample.failed_total + sample.rejected_total - sample.offered_again_total
