"""Deltas between two scrapes of one pod, and their sums over the fleet.

Counters are totals since an engine started, so only deltas between two scrapes of one pod have a meaning. A total that
falls means a counter reset (restart), and becomes the new base.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter, sub
from typing import Final

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.freshness import COUNTERS
from sluice_operator.autoscaler.signals.histograms import BOUNDS, overflow
from sluice_operator.autoscaler.values import EngineSample

_counters: Final = attrgetter(*COUNTERS)


@dataclass(frozen=True, slots=True)
class PodTotals:
    """One pod's counters at its newest good scrape: the base of the next delta."""

    name: str
    at: float  # monotonic seconds of the scrape
    counters: tuple[float, ...]  # in the order of `COUNTERS`
    running: float
    ttft: tuple[float, ...]  # cumulative counts per bucket
    itl: tuple[float, ...]
    cache_warmth: float = 0.0  # prompt tokens served from its cache, decaying like `Lengths`


@dataclass(frozen=True, slots=True)
class PodDelta:
    """The increase of one pod's totals between two scrapes."""

    counters: tuple[float, ...]
    ttft: tuple[float, ...]
    itl: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FleetDelta:
    """Deltas of the whole fleet over about a second: sums of the pods' deltas."""

    at: float
    seconds: float
    counters: tuple[float, ...]
    block_seconds: float  # pool blocks × seconds that those deltas span
    ttft: tuple[float, ...] = ()
    itl: tuple[float, ...] = ()
    overdue: float = 0.0  # first tokens later than the last bucket and than the target of that moment


def pod_totals(name: str, at: float, sample: EngineSample) -> PodTotals:
    """The totals of one scrape; a histogram without observations counts as zeros."""
    nothing = (0.0,) * len(BOUNDS)
    return PodTotals(
        name=name,
        at=at,
        counters=_counters(sample),
        running=sample.running,
        ttft=sample.ttft.counts or nothing,
        itl=sample.itl.counts or nothing,
    )


def pod_delta(old: PodTotals, new: PodTotals) -> PodDelta | None:
    """The increase of every total; None where one fell: the engine restarted."""
    rows = []
    for before, after in ((old.counters, new.counters), (old.ttft, new.ttft), (old.itl, new.itl)):
        row = tuple(map(sub, after, before))
        least = min(row)
        if least < 0.0:
            if least < -1e-9:
                return None
            row = tuple(max(0.0, value) for value in row)
        rows.append(row)
    return PodDelta(*rows)


def as_fleet_delta(delta: PodDelta, span: float, kv_blocks: float, now: float, ttft_target: float) -> FleetDelta:
    """One pod's delta over `span` seconds. After a long gap only the window's share counts: the rest is older."""
    share = min(1.0, LAW.signals.window_seconds / span)
    rows: Sequence[tuple[float, ...]] = (delta.counters, delta.ttft, delta.itl)
    counters, ttft, itl = rows if share == 1.0 else [tuple(share * value for value in row) for row in rows]
    return FleetDelta(
        at=now,
        seconds=span * share,
        counters=counters,
        block_seconds=kv_blocks * span * share,
        ttft=ttft,
        itl=itl,
        overdue=overflow(ttft) if ttft_target <= BOUNDS[-2] else 0.0,
    )


def merge(deltas: Sequence[FleetDelta]) -> FleetDelta:
    """The sum of deltas, at the time of the last one and over the longest of their spans."""
    return FleetDelta(
        at=deltas[-1].at,
        seconds=max(delta.seconds for delta in deltas),
        counters=sum_rows([delta.counters for delta in deltas]),
        block_seconds=sum(delta.block_seconds for delta in deltas),
        ttft=sum_rows([delta.ttft for delta in deltas]),
        itl=sum_rows([delta.itl for delta in deltas]),
        overdue=sum(delta.overdue for delta in deltas),
    )


def sum_rows(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The sum of each column; empty without rows."""
    return tuple(map(math.fsum, zip(*rows, strict=True)))
