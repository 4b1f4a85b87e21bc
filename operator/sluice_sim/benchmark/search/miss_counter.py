"""Counts the requests that a written schedule misses: over a part of a load, or with one replica fewer in one piece."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sluice_sim.benchmark.search.schedule import PIECE, Counts, Scheduled, last_piece, seconds_saved
from sluice_sim.benchmark.track import Track
from sluice_sim.cluster.fleet import Fleet, restored
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.cluster.scenario import Settings
from sluice_sim.results.score import least_engine_seconds
from sluice_sim.traces import Arrival

WARM_UP_PIECES: Final = 2  # pieces simulated before a part, so that it starts with a warm fleet
RECOVERY_PIECES: Final = 3  # pieces simulated after the piece that lost a replica, at most
CHECK_SECONDS: Final = 60.0  # seconds of arrivals between two counts of the misses so far


@dataclass(frozen=True, slots=True)
class _BaselineRun:
    """The unchanged schedule over the pieces from `start`: misses per piece, and the fleet's state at each start."""

    start: int
    missed: list[int]
    snapshots: list[bytes]


class MissCounter:
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
        """Lower bound on the replica-seconds of the piece's requests."""
        records = [RequestRecord(one.at, one.prompt, one.output) for one in self._by_piece[piece]]
        model, most = self.settings.truth, self.track.spec().engine.scheduling.max_num_seqs
        return least_engine_seconds(records, model, self.track.itl, most, share=1.0)

    def misses(self, counts: Counts, first: int, end: int) -> list[int]:
        """Per piece of [first, end), the number of its requests that miss their targets.

        The fleet starts with the first piece's count.
        """
        fleet = self._fleet(counts[first:end])
        return _by_piece(fleet.run(self._arrivals(first, first, end)).records, end - first)

    def removal_costs(self, counts: Counts, first: int, end: int, limit: int) -> list[int | None]:
        """Per piece of [first, end), the additional misses with one replica fewer in it, at most `limit`.

        None if the piece has no replica to lose or nothing to save. Only the affected part is simulated: from the start
        of the previous piece, in the state of the whole schedule, until a later piece misses no more than without the
        removal, or until RECOVERY_PIECES pieces have passed.
        """
        baseline = self._baseline(counts, max(0, first - WARM_UP_PIECES), min(self.pieces, end + RECOVERY_PIECES))
        lead, least = self.settings.cold_start, self.track.least
        return [
            self._removal_cost(counts, baseline, piece, limit)
            if counts[piece] > least and seconds_saved(counts, piece, lead, self._last) > 0 else None
            for piece in range(first, end)
        ]  # fmt: skip

    def _baseline(self, counts: Counts, start: int, stop: int) -> _BaselineRun:
        fleet, snapshots = self._fleet(counts[start:stop]), list[bytes]()

        def save(now: float) -> None:
            if len(snapshots) < stop - start and now >= len(snapshots) * PIECE:
                snapshots.append(fleet.snapshot())

        run = fleet.run(self._arrivals(start, start, stop), save)
        return _BaselineRun(start, _by_piece(run.records, stop - start), snapshots)

    def _removal_cost(self, counts: Counts, baseline: _BaselineRun, piece: int, limit: int) -> int:
        start, stop = baseline.start, min(baseline.start + len(baseline.missed), piece + RECOVERY_PIECES + 1)
        fewer = tuple(count - (k == piece) for k, count in enumerate(counts))[start : start + len(baseline.missed)]
        # A piece's replicas are launched a cold start before it begins, so the fleet resumes from before that moment.
        begin = max(start, piece - 1 - int(self.settings.cold_start // PIECE))
        law = Scheduled(fewer, self.settings.cold_start)
        fleet = self._fleet(fewer) if piece == start else restored(baseline.snapshots[begin - start], law)
        baseline_missed, fed = baseline.missed, [begin]  # the pieces whose arrivals are all fed

        def extra(*, decided_only: bool) -> int:
            missed = _by_piece(fleet.records, len(fewer), decided_only=decided_only)
            return sum(missed) - sum(baseline_missed[begin - start : fed[-1] - start + 1])

        def feed() -> Iterator[Arrival]:
            for at in range(begin, stop):
                if at > piece + 1:
                    missed = _by_piece(fleet.records, len(fewer), decided_only=True)
                    if missed[at - 1 - start] <= baseline_missed[at - 1 - start]:
                        return
                fed.append(at)
                next_check = 0.0
                for one in self._arrivals(start, at, at + 1):
                    if one.at >= next_check:
                        if extra(decided_only=True) >= limit:
                            return
                        next_check = one.at + CHECK_SECONDS
                    yield one

        fleet.run(feed())
        return min(limit, extra(decided_only=False))

    def _fleet(self, counts: Counts) -> Fleet:
        settings = replace(self.settings, begin=counts[0])
        return Fleet(self.track.spec(), settings, Scheduled(counts, settings.cold_start))

    def _arrivals(self, zero: int, first: int, end: int) -> Iterator[Arrival]:
        """Arrivals of the pieces [first, end), in seconds since the start of piece `zero`."""
        start = zero * PIECE
        for piece in range(first, end):
            for one in self._by_piece[piece]:
                yield replace(one, at=one.at - start) if zero else one


def _by_piece(records: Sequence[RequestRecord], pieces: int, *, decided_only: bool = False) -> list[int]:
    """Misses per piece, by arrival time. `decided_only` leaves out requests that are still in progress."""
    missed = [0] * pieces
    for one in records:
        if not one.good and not (decided_only and one.ended_at is None and not one.refused and not one.failed):
            missed[int(one.arrived_at / PIECE)] += 1
    return missed
