"""From scrapes to differences: what the fleet did over the last half minute.

Counters are totals since an engine started, so only differences of two scrapes of one pod mean something; a total
that fell says that the engine started again, and it is taken as the new base.

A first token beyond the last bucket misses any target within the buckets, whatever the engine has said of it so far:
it judges a request when the answer ends, which may be minutes later. So the window's misses are the larger of what the
engines judged and what overflowed. An inter-token time beyond the last bucket is left to the engines' judgement: the
promise is of a request's mean, which no bucket of single tokens shows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, sub
from typing import Final

from sluice_operator.decide import tally
from sluice_operator.decide.histograms import BOUNDS, overflow
from sluice_operator.decide.history import book
from sluice_operator.decide.trust import COUNTERS, Fresh
from sluice_operator.decide.values import EngineSample, Lengths, Memory, Outcome, PodTotals, Tick

# Long enough for 30 Poisson arrivals at 1 req/s (± 18 %), short enough to act within a cold start; holds six scrapes
# at 5 s and thirty at 1 s.
WINDOW: Final = 30.0
SHORT: Final = 10.0  # two scrapes at 5 s: the quickest difference that is not one scrape's accident
SLOT: Final = 0.9  # ticks closer than this are added up: at most WINDOW / SLOT of them are kept
FORGET: Final = 120.0  # seconds; lengths change slower than rates, and the mean of a heavy tail needs the samples
_LONGEST_GAP: Final = 60.0  # an outage is not the scrape interval
_counters: Final = attrgetter(*COUNTERS)
_ARRIVED, _CACHED = COUNTERS.index("arrived_total"), COUNTERS.index("cached_prompt_tokens_total")
_MET, _MISSED = COUNTERS.index("slo_met_total"), COUNTERS.index("slo_missed_total")
_FAILED, _REJECTED, _AGAIN = (COUNTERS.index(f"{name}_total") for name in ("failed", "rejected", "offered_again"))


@dataclass(frozen=True, slots=True)
class Sums:
    """The fleet's differences over a window: each is added up when it is asked for, since who asks wants one or two."""

    ticks: tuple[Tick, ...] = ()  # oldest first

    @property
    def seconds(self) -> float:
        """That the differences span."""
        return self.ticks[-1].at - self.ticks[0].at + self.ticks[0].seconds if self.ticks else 0.0

    def count(self, name: str) -> float:
        """How much a counter of `COUNTERS` grew; of those that missed, all that are known to have."""
        grew = self._grew(COUNTERS.index(name))
        return max(grew, self.overdue) if name == "slo_missed_total" else grew

    def rate(self, name: str) -> float:
        """The same per second."""
        seconds = self.seconds
        return self.count(name) / seconds if seconds > 0 else 0.0

    @property
    def outcome(self) -> Outcome:
        """What became of requests. A gateway offers whom one replica refuses to the next, and each that refuses counts:
        refusals less those offered again are the requests that nobody served. The two are counted by two engines, and may
        be scraped in two ticks: over one the difference may be negative."""
        late = self.count("slo_missed_total") + self._grew(_FAILED)
        return Outcome(self._grew(_MET), late, self._grew(_REJECTED) - self._grew(_AGAIN))

    @property
    def block_seconds(self) -> float:
        """Blocks of the pools × seconds."""
        return sum(tick.block_seconds for tick in self.ticks)

    @property
    def ttft(self) -> tuple[float, ...]:
        """Cumulative counts per bucket; empty where nothing was seen."""
        return _sum([tick.ttft for tick in self.ticks])

    @property
    def itl(self) -> tuple[float, ...]:
        """The same of inter-token times."""
        return _sum([tick.itl for tick in self.ticks])

    @property
    def overdue(self) -> float:
        """First tokens beyond the last bucket, where that is a miss."""
        return sum(tick.overdue for tick in self.ticks)

    def _grew(self, place: int) -> float:
        return math.fsum([tick.counters[place] for tick in self.ticks])


def absorb(memory: Memory, seen: Fresh, now: float, ttft: float) -> Memory:
    """Add the newest differences to the window, and forget what left it. Of engines that load only arrivals count, and
    only where any came: that nobody asked them says nothing of the load. `ttft` is the target in seconds."""
    before = {pod.name: pod for pod in memory.pods}
    present = {pod.name for pod in (*seen.ready, *(pod for pod, _ in seen.heard))}
    after = {name: totals for name, totals in before.items() if name in present}
    gap, reset = memory.scrape_gap, False
    growths: list[Tick] = []
    arrivals: list[tuple[float, float, float]] = []
    joined = 0.0  # how many more requests run than at the last scrape
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
    ticks, lengths, kept = memory.ticks, memory.lengths, memory.kept
    if growths:
        tick = _merge(growths)
        sums = tick.counters
        # As the engines judged them: who is overdue is counted when it ends, once.
        ended = Outcome(sums[_MET], sums[_MISSED] + sums[_FAILED], sums[_REJECTED] - sums[_AGAIN])
        ticks, lengths = _append(ticks, tick), _lengths(lengths, tick, joined, now)
        kept = tally.count(kept, ended, now)
    return replace(
        memory,
        pods=tuple([after[name] for name in sorted(after)]),
        scrape_gap=gap,
        no_down_until=now + WINDOW if reset else memory.no_down_until,
        lengths=lengths,
        kept=kept,
        ticks=tuple([tick for tick in ticks if now - WINDOW < tick.at <= now]),
        slots=book(memory.slots, arrivals, now) if arrivals else memory.slots,
    )


def over(memory: Memory, now: float, seconds: float) -> Sums:
    """The window's sums over the last `seconds`."""
    oldest = now - seconds
    return Sums(tuple([tick for tick in memory.ticks if tick.at > oldest]))


_Grew = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]  # counters, ttft, itl


def _growth(grew: _Grew, span: float, sample: EngineSample, now: float, target: float) -> Tick:
    """What one pod did between two scrapes. Of a long silence only the window's share counts: the rest is older."""
    share = min(1.0, WINDOW / span)
    counters, ttft, itl = grew if share == 1.0 else [tuple(share * value for value in row) for row in grew]
    return Tick(
        at=now,
        seconds=span * share,
        counters=counters,
        block_seconds=sample.kv_blocks * span * share,
        ttft=ttft,
        itl=itl,
        overdue=overflow(ttft) if target <= BOUNDS[-2] else 0.0,
    )


def _append(ticks: tuple[Tick, ...], tick: Tick) -> tuple[Tick, ...]:
    """Add a tick, or grow the last one where they are too close to be kept apart."""
    if not ticks or tick.at - ticks[-1].at >= SLOT:
        return (*ticks, tick)
    last = ticks[-1]
    grown = replace(_merge([last, tick]), at=last.at, seconds=last.seconds)
    return (*ticks[:-1], grown)


def _merge(ticks: Sequence[Tick]) -> Tick:
    return Tick(
        at=ticks[-1].at,
        seconds=max(tick.seconds for tick in ticks),
        counters=_sum([tick.counters for tick in ticks]),
        block_seconds=sum(tick.block_seconds for tick in ticks),
        ttft=_sum([tick.ttft for tick in ticks]),
        itl=_sum([tick.itl for tick in ticks]),
        overdue=sum(tick.overdue for tick in ticks),
    )


def _lengths(old: Lengths, tick: Tick, joined: float, now: float) -> Lengths:
    """Fold a tick into the forgetting sums. Requests that joined have been given half of their tokens on the mean:
    counted half as finished, they keep tokens per request right while the load grows or falls."""
    keep = math.exp(-max(0.0, now - old.at) / FORGET)  # remembered ones (at: infinity) begin to fade now
    grew = dict(zip(COUNTERS, tick.counters, strict=True))
    return Lengths(
        at=now,
        finished=old.finished * keep + grew["finished_total"] + joined / 2.0,
        started=old.started * keep + grew["finished_total"] + joined,
        generated=old.generated * keep + grew["generated_tokens_total"],
        prompt=old.prompt * keep + grew["prompt_tokens_total"],
        cached=old.cached * keep + grew["cached_prompt_tokens_total"],
    )


def _faded(old: PodTotals, at: float) -> float:
    """What is left of a cache's warmth: spared tokens are remembered as long as lengths are."""
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
    """How far every total grew; None where one fell: the engine started again."""
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
