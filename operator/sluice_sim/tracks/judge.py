"""How many requests a written schedule misses: over a part of a load, or by one replica less in one piece."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sluice_sim.fleet import Fleet, resumed
from sluice_sim.record import Record
from sluice_sim.score import least_engine_seconds
from sluice_sim.settings import Settings
from sluice_sim.traces import Arrival
from sluice_sim.tracks.schedule import PIECE, Counts, Scheduled, last_piece, saving
from sluice_sim.tracks.track import Track

WARM: Final = 2  # pieces that are simulated before a part that is looked at by itself, so that it begins warm
AFTER: Final = 3  # pieces after the one that lost a replica that are simulated at most
LOOKS: Final = 60.0  # seconds of arrivals between two looks at what was missed so far


@dataclass(frozen=True, slots=True)
class _Kept:
    """The schedule as it is, over the pieces from `start`: misses of each, and the fleet at each one's beginning."""

    start: int
    missed: list[int]
    saved: list[bytes]


class Judge:
    """Counts misses of schedules for a track's load."""

    def __init__(self, track: Track, settings: Settings, arrivals: Sequence[Arrival], seconds: float) -> None:
        self.track, self.settings = track, settings
        self.pieces = max(1, math.ceil(seconds / PIECE))
        self._last = last_piece(seconds)
        self._by_piece: list[list[Arrival]] = [[] for _ in range(self.pieces)]
        for one in arrivals:
            self._by_piece[int(one.at / PIECE)].append(one)

    def offered(self, piece: int) -> int:
        """Requests of the piece."""
        return len(self._by_piece[piece])

    def work(self, piece: int) -> float:
        """Least replica-seconds of the piece's requests."""
        records = [Record(one.at, one.prompt, one.output) for one in self._by_piece[piece]]
        model, most = self.settings.truth, self.track.spec().engine.scheduling.max_num_seqs
        return least_engine_seconds(records, model, self.track.itl, most, share=1.0)

    def misses(self, counts: Counts, first: int, end: int) -> list[int]:
        """Per piece of [first, end), how many of its requests are not good; the fleet begins as the first piece says."""
        fleet = self._fleet(counts[first:end])
        return _by_piece(fleet.run(self._arrivals(first, first, end)).records, end - first)

    def spare(self, counts: Counts, first: int, end: int, limit: int) -> list[int | None]:
        """Per piece of [first, end), how many requests are missed in addition with one replica less there; None where
        there is none to take or nothing to save, and at least `limit` where it is beyond that.

        Only what follows is simulated: from the beginning of the piece before, as the whole schedule has it there, until
        a later piece misses no more than it does anyway, or AFTER pieces have passed.
        """
        kept = self._kept(counts, max(0, first - WARM), min(self.pieces, end + AFTER))
        lead, least = self.settings.cold_start, self.track.least
        return [
            self._extra(counts, kept, piece, limit)
            if counts[piece] > least and saving(counts, piece, lead, self._last) > 0 else None
            for piece in range(first, end)
        ]  # fmt: skip

    def _kept(self, counts: Counts, start: int, stop: int) -> _Kept:
        fleet, saved = self._fleet(counts[start:stop]), list[bytes]()

        def save(now: float) -> None:
            if len(saved) < stop - start and now >= len(saved) * PIECE:
                saved.append(fleet.saved())

        run = fleet.run(self._arrivals(start, start, stop), save)
        return _Kept(start, _by_piece(run.records, stop - start), saved)

    def _extra(self, counts: Counts, kept: _Kept, piece: int, limit: int) -> int:
        start, stop = kept.start, min(kept.start + len(kept.missed), piece + AFTER + 1)
        fewer = tuple(count - (k == piece) for k, count in enumerate(counts))[start : start + len(kept.missed)]
        # A piece's replicas are launched a cold start before it begins: the fleet from before that moment goes on.
        begin = max(start, piece - 1 - int(self.settings.cold_start // PIECE))
        law = Scheduled(fewer, self.settings.cold_start)
        fleet = self._fleet(fewer) if piece == start else resumed(kept.saved[begin - start], law)
        usual, fed = kept.missed, [begin]  # the pieces of which all have come

        def extra(ended: bool) -> int:
            missed = _by_piece(fleet.records, len(fewer), ended)
            return sum(missed) - sum(usual[begin - start : fed[-1] - start + 1])

        def feed() -> Iterator[Arrival]:
            for at in range(begin, stop):
                if at > piece + 1:
                    missed = _by_piece(fleet.records, len(fewer), ended=True)
                    if missed[at - 1 - start] <= usual[at - 1 - start]:
                        return
                fed.append(at)
                look = 0.0
                for one in self._arrivals(start, at, at + 1):
                    if one.at >= look:
                        if extra(ended=True) >= limit:
                            return
                        look = one.at + LOOKS
                    yield one

        fleet.run(feed())
        return min(limit, extra(ended=False))

    def _fleet(self, counts: Counts) -> Fleet:
        settings = replace(self.settings, begin=counts[0])
        return Fleet(self.track.spec(), settings, Scheduled(counts, settings.cold_start))

    def _arrivals(self, zero: int, first: int, end: int) -> Iterator[Arrival]:
        """Of the pieces [first, end), in seconds since piece `zero` began."""
        start = zero * PIECE
        for piece in range(first, end):
            for one in self._by_piece[piece]:
                yield replace(one, at=one.at - start) if zero else one


def _by_piece(records: Sequence[Record], pieces: int, ended: bool = False) -> list[int]:
    missed = [0] * pieces
    for one in records:
        if not one.good and not (ended and one.ended_at is None and not one.refused and not one.failed):
            missed[int(one.arrived_at / PIECE)] += 1
    return missed
