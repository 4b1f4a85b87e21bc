"""Deltas between scrapes: the fleet's work over the last half minute.

Counters are totals since an engine started, so only deltas between two scrapes of one pod have a meaning. A total that
falls means a counter reset (restart), and becomes the new base.

A first token beyond the last bucket misses any target within the buckets, whatever the engine has counted so far: the
engine judges a request at its end, which may be minutes later. The window's misses are therefore the larger of the
engines' count and the overflow. An inter-token time beyond the last bucket is left to the engines' judgement, because
the target is for a request's mean, which no bucket of single tokens shows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, sub
from typing import Final

from sluice_operator.autoscaler.signals import error_tally
from sluice_operator.autoscaler.signals.arrival_history import book
from sluice_operator.autoscaler.signals.freshness import COUNTERS, Fresh
from sluice_operator.autoscaler.signals.histograms import BOUNDS, overflow
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import EngineSample, FleetDelta, Lengths, Outcome, PodTotals

# Seconds: 30 Poisson arrivals at 1 req/s (± 18 %), and short enough to act within a cold start. It holds six scrapes at
# 5 s and thirty at 1 s.
WINDOW: Final = 30.0
SHORT: Final = 10.0  # seconds, two scrapes at 5 s: the shortest delta that does not depend on one scrape
SLOT: Final = 0.9  # seconds; closer deltas are merged: at most WINDOW / SLOT of them are kept
FORGET: Final = 120.0  # seconds; lengths change slower than rates, and the mean of a heavy tail needs the samples
_LONGEST_GAP: Final = 60.0  # an outage is not the scrape interval
_counters: Final = attrgetter(*COUNTERS)
_ARRIVED, _CACHED = COUNTERS.index("arrived_total"), COUNTERS.index("cached_prompt_tokens_total")
_MET, _MISSED = COUNTERS.index("slo_met_total"), COUNTERS.index("slo_missed_total")
_FAILED, _REJECTED, _AGAIN = (COUNTERS.index(f"{name}_total") for name in ("failed", "rejected", "offered_again"))


@dataclass(frozen=True, slots=True)
class Sums:
    """The fleet's deltas over a window. Each sum is computed on access, because a caller needs one or two of them."""

    deltas: tuple[FleetDelta, ...] = ()  # oldest first

    @property
    def seconds(self) -> float:
        """Time that the deltas span."""
        return self.deltas[-1].at - self.deltas[0].at + self.deltas[0].seconds if self.deltas else 0.0

    def count(self, name: str) -> float:
        """Increase of a counter of `COUNTERS`; for SLO misses the larger of the count and the overdue first tokens."""
        grew = self._grew(COUNTERS.index(name))
        return max(grew, self.overdue) if name == "slo_missed_total" else grew

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
        late = self.count("slo_missed_total") + self._grew(_FAILED)
        return Outcome(self._grew(_MET), late, self._grew(_REJECTED) - self._grew(_AGAIN))

    @property
    def block_seconds(self) -> float:
        """Blocks of the pools × seconds."""
        return sum(delta.block_seconds for delta in self.deltas)

    @property
    def ttft(self) -> tuple[float, ...]:
        """Cumulative counts per bucket; empty without observations."""
        return _sum([delta.ttft for delta in self.deltas])

    @property
    def itl(self) -> tuple[float, ...]:
        """Cumulative counts of inter-token times per bucket; empty without observations."""
        return _sum([delta.itl for delta in self.deltas])

    @property
    def overdue(self) -> float:
        """First tokens beyond the last bucket, where that is a miss."""
        return sum(delta.overdue for delta in self.deltas)

    def _grew(self, place: int) -> float:
        return math.fsum([delta.counters[place] for delta in self.deltas])


def absorb(memory: AutoscalerState, seen: Fresh, now: float, ttft: float) -> AutoscalerState:
    """Add the newest deltas to the window and drop those older than it.

    Loading engines contribute only arrivals, and only where their count is above zero: zero arrivals carry no
    information about the load. `ttft` is the target in seconds.
    """
    before = {pod.name: pod for pod in memory.pods}
    present = {pod.name for pod in (*seen.ready, *(pod for pod, _ in seen.heard))}
    after = {name: totals for name, totals in before.items() if name in present}
    gap, reset = memory.scrape_gap, False
    growths: list[FleetDelta] = []
    arrivals: list[tuple[float, float, float]] = []
    joined = 0.0  # increase of running requests since the last scrape
    for pod, sample in (*seen.known, *seen.heard):
        at = now if pod.sample_at is None else pod.sample_at
        old = before.get(pod.name)
        if old is not None and at <= old.at:
            continue
        new = _totals(pod.name, at, sample)
        after[pod.name] = new
        if old is None:
            continue
        grew = _difference(old, new)
        if grew is None:
            reset = True
            continue
        if pod.phase != "ready":
            arrivals += [(old.at, new.at, grew[0][_ARRIVED])] if grew[0][_ARRIVED] > 0.0 else []
            continue
        newest = min(at - old.at, _LONGEST_GAP)
        gap = newest if gap is None else gap + 0.1 * (newest - gap)
        after[pod.name] = replace(new, spared=_faded(old, new.at) + grew[0][_CACHED])
        growths.append(_growth(grew, new.at - old.at, sample, now, ttft))
        arrivals.append((old.at, new.at, grew[0][_ARRIVED]))
        joined += new.running - old.running
    deltas, lengths, kept = memory.deltas, memory.lengths, memory.kept
    if growths:
        delta = _merge(growths)
        sums = delta.counters
        # The engines' own judgement: an overdue request is counted once, when it ends.
        ended = Outcome(sums[_MET], sums[_MISSED] + sums[_FAILED], sums[_REJECTED] - sums[_AGAIN])
        deltas, lengths = _append(deltas, delta), _lengths(lengths, delta, joined, now)
        kept = error_tally.count(kept, ended, now)
    return replace(
        memory,
        pods=tuple([after[name] for name in sorted(after)]),
        scrape_gap=gap,
        no_down_until=now + WINDOW if reset else memory.no_down_until,
        lengths=lengths,
        kept=kept,
        deltas=tuple([delta for delta in deltas if now - WINDOW < delta.at <= now]),
        slots=book(memory.slots, arrivals, now) if arrivals else memory.slots,
    )


def over(memory: AutoscalerState, now: float, seconds: float) -> Sums:
    """The window's sums over the last `seconds`."""
    oldest = now - seconds
    return Sums(tuple([delta for delta in memory.deltas if delta.at > oldest]))


_Grew = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]  # counters, ttft, itl


def _growth(grew: _Grew, span: float, sample: EngineSample, now: float, target: float) -> FleetDelta:
    """One pod's deltas between two scrapes. After a long gap only the window's share counts: the rest is older."""
    share = min(1.0, WINDOW / span)
    counters, ttft, itl = grew if share == 1.0 else [tuple(share * value for value in row) for row in grew]
    return FleetDelta(
        at=now,
        seconds=span * share,
        counters=counters,
        block_seconds=sample.kv_blocks * span * share,
        ttft=ttft,
        itl=itl,
        overdue=overflow(ttft) if target <= BOUNDS[-2] else 0.0,
    )


def _append(deltas: tuple[FleetDelta, ...], delta: FleetDelta) -> tuple[FleetDelta, ...]:
    """Add a delta, or merge it into the last one where they are too close to be kept apart."""
    if not deltas or delta.at - deltas[-1].at >= SLOT:
        return (*deltas, delta)
    last = deltas[-1]
    grown = replace(_merge([last, delta]), at=last.at, seconds=last.seconds)
    return (*deltas[:-1], grown)


def _merge(deltas: Sequence[FleetDelta]) -> FleetDelta:
    return FleetDelta(
        at=deltas[-1].at,
        seconds=max(delta.seconds for delta in deltas),
        counters=_sum([delta.counters for delta in deltas]),
        block_seconds=sum(delta.block_seconds for delta in deltas),
        ttft=_sum([delta.ttft for delta in deltas]),
        itl=_sum([delta.itl for delta in deltas]),
        overdue=sum(delta.overdue for delta in deltas),
    )


def _lengths(old: Lengths, delta: FleetDelta, joined: float, now: float) -> Lengths:
    """Fold a delta into the decaying sums.

    Requests that joined the batch have half of their tokens on average. They count half as finished, which keeps tokens
    per request right while the load grows or falls.
    """
    keep = math.exp(-max(0.0, now - old.at) / FORGET)  # remembered lengths (at: infinity) start to decay now
    grew = dict(zip(COUNTERS, delta.counters, strict=True))
    return Lengths(
        at=now,
        finished=old.finished * keep + grew["finished_total"] + joined / 2.0,
        started=old.started * keep + grew["finished_total"] + joined,
        generated=old.generated * keep + grew["generated_tokens_total"],
        prompt=old.prompt * keep + grew["prompt_tokens_total"],
        cached=old.cached * keep + grew["cached_prompt_tokens_total"],
    )


def _faded(old: PodTotals, at: float) -> float:
    """The cache's warmth at `at`: saved tokens decay with the time constant of the lengths."""
    return old.spared * math.exp(-max(0.0, at - old.at) / FORGET)


def _totals(name: str, at: float, sample: EngineSample) -> PodTotals:
    nothing = (0.0,) * len(BOUNDS)
    return PodTotals(
        name=name,
        at=at,
        counters=_counters(sample),
        running=sample.running,
        ttft=sample.ttft.counts or nothing,
        itl=sample.itl.counts or nothing,
    )


def _difference(old: PodTotals, new: PodTotals) -> _Grew | None:
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
    return rows[0], rows[1], rows[2]


def _sum(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(map(math.fsum, zip(*rows, strict=True)))
