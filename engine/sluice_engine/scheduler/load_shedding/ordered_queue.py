"""An ordered queue of requests that can still meet their deadline, which tells whether one more makes any of them late.

A sorted list in blocks of about √n entries. A block caches its work and its earliest deadline: where its last entry
would be in time for that, all of its entries are.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from sluice_engine.request import Request
from sluice_engine.scheduler.load_shedding.lateness import ROUNDING, Load, ServiceRate

SMALLEST: Final = 16  # entries: shorter blocks are not split, and joined with the next


class Entry(NamedTuple):
    """A queued request in order of service. Compared up to `serial`, which is unique."""

    late: bool  # demoted: served after all that can still be in time
    number: float
    served: float  # the tenant's counter on arrival: the tie-break
    order: int
    serial: int
    renewed: bool
    work: float  # seconds of prompt to compute, as of its arrival; 0 while no model was fitted
    request: Request

    def deadline(self, target: float) -> float:
        """When its first token is due, seconds, `target` being for requests without their own; inf where it has run or is
        exempt."""
        request = self.request
        if not _has_deadline(request):
            return math.inf
        return request.arrived_at + (target if request.ttft_target is None else request.ttft_target)


class _Summary(NamedTuple):
    """Of a block. Seconds."""

    work: float  # of all
    longest: float  # work of one
    deadline: float  # the earliest explicit one
    arrival: float  # the earliest of requests without a deadline of their own


class _Block:
    """Consecutive entries; never empty."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self._summary: _Summary | None = None

    def changed(self) -> None:
        """The cached summary is out of date."""
        self._summary = None

    @property
    def summary(self) -> _Summary:
        """Of the present entries. O(1) while the block does not change."""
        if self._summary is None:
            fresh = [entry.request for entry in self.entries if _has_deadline(entry.request)]
            self._summary = _Summary(
                work=sum(entry.work for entry in self.entries),
                longest=max(entry.work for entry in self.entries),
                deadline=min(
                    (each.arrived_at + each.ttft_target for each in fresh if each.ttft_target is not None),
                    default=math.inf,
                ),
                arrival=min((each.arrived_at for each in fresh if each.ttft_target is None), default=math.inf),
            )
        return self._summary


class OrderedQueue:
    """Entries in order. Adding and removing one is O(log n), and a shift of O(√n) references."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._count = 0

    def __len__(self) -> int:
        """Entries."""
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        """In order."""
        return (entry for block in self._blocks for entry in block.entries)

    def add(self, entry: Entry) -> None:
        """One more entry."""
        self._count += 1
        if not self._blocks:
            self._blocks.append(_Block([entry]))
            return
        place = self._block_of(entry)
        block = self._blocks[place]
        insort(block.entries, entry)
        block.changed()
        if len(block.entries) > self._longest_block:
            middle = len(block.entries) // 2
            self._blocks.insert(place + 1, _Block(block.entries[middle:]))
            del block.entries[middle:]

    def remove(self, entry: Entry) -> None:
        """One entry less. Raises KeyError where it is not queued."""
        place = self._block_of(entry) if self._blocks else 0
        entries = self._blocks[place].entries if self._blocks else []
        index = bisect_left(entries, entry)
        if index == len(entries) or entries[index] is not entry:
            raise KeyError(entry.request.request_id)
        del entries[index]
        self._count -= 1
        self._blocks[place].changed()
        if not entries:
            del self._blocks[place]
        elif place + 1 < len(self._blocks):
            after = self._blocks[place + 1].entries
            if len(entries) + len(after) <= self._longest_block // 2:
                entries += after
                del self._blocks[place + 1]

    def wait_if_all_in_time(self, newcomer: Entry, rate: ServiceRate, now: float, target: float) -> float | None:
        """Seconds until the newcomer's first token; None where some request, or the newcomer, may miss its deadline if the
        newcomer is added. Amortised O(√n) while requests have a slack of about √n requests' time, O(n) where not.

        Sums are rounded differently from one pass over the queue: where that could matter the result is None.
        """
        load, wait = Load(0, 0.0), 0.0
        at = self._block_of(newcomer) if self._blocks else -1
        for place, block in enumerate(self._blocks):
            summary, last = block.summary, len(block.entries) - 1
            if place == at:
                entries = block.entries.copy()
                insort(entries, newcomer)
                if not _in_time(entries, load, rate, now, target):
                    return None
                index = bisect_left(entries, newcomer)
                wait = _wait(entries[: index + 1], load, rate)
                load = Load(load.ahead + 1, load.work + newcomer.work)
            else:
                end = rate.first_token(load.ahead + last, load.work + summary.work, summary.longest)
                due = min(summary.deadline, summary.arrival + target) - now
                if not _clearly(end, due) and not _in_time(block.entries, load, rate, now, target):
                    return None
            load = Load(load.ahead + last + 1, load.work + summary.work)
        if at < 0:
            wait = _wait([newcomer], load, rate)
            return wait if _in_time([newcomer], load, rate, now, target) else None
        return wait

    def with_newcomer(self, newcomer: Entry) -> list[Entry]:
        """All entries and the newcomer, in order. O(n)."""
        entries = list(self)
        insort(entries, newcomer)
        return entries

    @property
    def _longest_block(self) -> int:
        return max(SMALLEST, 2 * math.isqrt(self._count))

    def _block_of(self, entry: Entry) -> int:
        """The block that the entry belongs to, the last one for an entry after all others."""
        return min(bisect_left(self._blocks, entry, key=_last), len(self._blocks) - 1)


def _has_deadline(request: Request) -> bool:
    return request.first_scheduled_at is None and not request.exempt


def _last(block: _Block) -> Entry:
    return block.entries[-1]


def _clearly(seconds: float, due: float) -> bool:
    """Whether it is in time whatever the rounding of the sum."""
    return seconds + ROUNDING * (1.0 + seconds) <= due


def _in_time(entries: Iterable[Entry], load: Load, rate: ServiceRate, now: float, target: float) -> bool:
    ahead, work = load
    for entry in entries:
        work += entry.work
        if not _clearly(rate.first_token(ahead, work, entry.work), entry.deadline(target) - now):
            return False
        ahead += 1
    return True


def _wait(entries: Sequence[Entry], load: Load, rate: ServiceRate) -> float:
    """Seconds until the first token of the last of them."""
    work = load.work + sum(entry.work for entry in entries)
    return rate.first_token(load.ahead + len(entries) - 1, work, entries[-1].work)
