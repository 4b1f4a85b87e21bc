"""The schedule of somebody who knows the future: what every law's GPU-hours are divided by.

Counts per piece of five minutes, each replica launched a cold start early. A window of three hours is searched by
itself: from more than enough downwards, always the step that costs the fewest misses per second saved, written down
as a path. The whole takes the cheapest steps of all windows' paths until one request in a hundred is missed, is
verified in one run, and is then tried piece by piece: none may lose a replica with the attainment still reached.
It is a feasible schedule, not proven optimal.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sluice_sim.fleet import Fleet
from sluice_sim.record import Record
from sluice_sim.score import HOUR, least_engine_seconds
from sluice_sim.settings import Settings
from sluice_sim.traces import Arrival
from sluice_sim.tracks.schedule import PIECE, Scheduled
from sluice_sim.tracks.track import Track

Counts = tuple[int, ...]
WINDOW_PIECES: Final = 36  # three hours
BEFORE: Final = 1  # pieces that are simulated before the one that is tried, so that it begins warm
AFTER: Final = 2  # and after it: a queue that it left behind is over by then
ROOM: Final = 1.25  # of the work bound: where a search begins
SPARE: Final = 0.02  # a path goes on until this share of its window's requests is missed


@dataclass(frozen=True, slots=True)
class Step:
    """One replica less in one piece: what it costs in missed requests and saves in replica-seconds."""

    piece: int
    missed: int
    saved: float


@dataclass(frozen=True, slots=True)
class Path:
    """A window's search: where it began and its steps, in the order in which they must be taken."""

    start: Counts
    steps: tuple[Step, ...]


class Judge:
    """Counts misses of a schedule, over a part of a load."""

    def __init__(self, track: Track, settings: Settings, arrivals: Sequence[Arrival], seconds: float) -> None:
        self.track, self.settings = track, settings
        self.pieces = max(1, math.ceil(seconds / PIECE))
        self._by_piece: list[list[Arrival]] = [[] for _ in range(self.pieces)]
        for one in arrivals:
            self._by_piece[int(one.at / PIECE)].append(one)
        self.requests = len(arrivals)
        self._known: dict[tuple[int, Counts], list[int]] = {}

    def misses(self, counts: Counts, first: int, end: int) -> list[int]:
        """Per piece of [first, end), how many of its requests are not good; the fleet begins as the first piece says."""
        known = self._known.get((first, counts[first:end]))
        if known is not None:
            return known
        start = first * PIECE
        part = [replace(one, at=one.at - start) for piece in self._by_piece[first:end] for one in piece]
        settings = replace(self.settings, begin=counts[first])
        law = Scheduled(counts[first:end], settings.cold_start)
        missed = [0] * (end - first)
        for record in Fleet(self.track.spec(), settings, law).run(part).records if part else ():
            missed[int(record.arrived_at / PIECE)] += not record.good
        self._known[(first, counts[first:end])] = missed
        return missed

    def work(self, piece: int) -> float:
        """Least replica-seconds of the piece's requests."""
        records = [Record(one.at, one.prompt, one.output) for one in self._by_piece[piece]]
        model, most = self.settings.truth, self.track.spec().engine.scheduling.max_num_seqs
        return least_engine_seconds(records, model, self.track.itl, most, share=1.0)

    def offered(self, first: int, end: int) -> int:
        """Requests of [first, end)."""
        return sum(len(piece) for piece in self._by_piece[first:end])


def saving(counts: Sequence[int], piece: int, lead: float) -> float:
    """Replica-seconds that one replica less in the piece saves: the piece itself, and a start more or less."""
    after = list(counts)
    after[piece] -= 1
    return cost(counts, lead) - cost(after, lead)


def cost(counts: Sequence[int], lead: float) -> float:
    """Replica-seconds of a schedule, each start's loading included."""
    starts = sum(max(0, b - a) for a, b in itertools.pairwise(counts))
    return PIECE * sum(counts) + lead * starts


def enough(judge: Judge, first: int, end: int, note: Callable[[str], None]) -> Counts:
    """A schedule of the whole load's length that misses nearly nothing in [first, end)."""
    track = judge.track
    counts = [track.least] * judge.pieces
    for piece in range(first, end):
        counts[piece] = min(track.most, max(track.least, math.ceil(ROOM * judge.work(piece) / PIECE) + 1))
    for _ in range(track.most):
        missed = judge.misses(tuple(counts), first, end)
        late = [
            first + k
            for k, count in enumerate(missed)
            if count > 0.002 * max(1, judge.offered(first + k, first + k + 1))
        ]
        late = [piece for piece in late if counts[piece] < track.most]
        if not late:
            break
        note(f"pieces {first}–{end}: {sum(missed)} missed, {len(late)} pieces get one more")
        for piece in late:
            counts[piece] += 1
    return tuple(counts)


def path(judge: Judge, first: int, end: int, note: Callable[[str], None] = lambda _: None) -> Path:
    """Search [first, end) downwards from `enough`."""
    counts = list(enough(judge, first, end, note))
    start, lead, least = tuple(counts[first:end]), judge.settings.cold_start, judge.track.least
    budget, spent = SPARE * judge.offered(first, end), 0
    steps: list[Step] = []
    known: dict[int, int] = {}  # piece → extra misses, of the present neighbourhood
    while spent <= budget:
        for piece in range(first, end):
            if piece not in known and counts[piece] > least:
                known[piece] = _extra(judge, counts, piece, first, end)
        open_ = [piece for piece in known if counts[piece] > least and saving(counts, piece, lead) > 0]
        if not open_:
            break
        best = min(open_, key=lambda piece: (known[piece] / saving(counts, piece, lead), piece))
        steps.append(Step(best, known[best], saving(counts, best, lead)))
        spent += max(0, known[best])
        counts[best] -= 1
        for near in range(best - BEFORE - 1, best + AFTER + 2):
            known.pop(near, None)
        note(f"pieces {first}–{end}: {spent} of {budget:.0f} missed after {len(steps)} steps")
    return Path(start, tuple(steps))


def _extra(judge: Judge, counts: Sequence[int], piece: int, first: int, end: int) -> int:
    """Requests that are missed in addition with one replica less there."""
    low, high = max(first, piece - BEFORE), min(end, piece + AFTER + 1)
    fewer = [*counts]
    fewer[piece] -= 1
    return sum(judge.misses(tuple(fewer), low, high)) - sum(judge.misses(tuple(counts), low, high))


def joined(paths: Sequence[Path], budget: float) -> tuple[list[int], list[tuple[int, Step]]]:
    """The windows' starts as one schedule, and all steps in the order of their price: those of one window stay in its
    own order, and the next of the cheapest window comes next. Stops when `budget` requests are missed."""
    counts = [count for one in paths for count in one.start]
    taken: list[tuple[int, Step]] = []
    at, spent = [0] * len(paths), 0.0
    while True:
        open_ = [k for k, one in enumerate(paths) if at[k] < len(one.steps)]
        if not open_:
            return counts, taken
        best = min(open_, key=lambda k: paths[k].steps[at[k]].missed / paths[k].steps[at[k]].saved)
        step = paths[best].steps[at[best]]
        spent += step.missed
        if spent > budget:
            return counts, taken
        at[best] += 1
        counts[step.piece] -= 1
        taken.append((best, step))


def verified(
    judge: Judge, paths: Sequence[Path], attainment: float = 0.99, note: Callable[[str], None] = lambda _: None
) -> Counts:
    """The cheapest of the joined schedules that reaches the attainment in one run over the whole load; then every piece
    is tried once more until none can lose a replica."""
    allowed = math.floor((1.0 - attainment) * judge.requests + 1e-9)
    low, high, best = 0.0, SPARE * judge.requests, None
    for attempt in range(7):
        middle = (low + high) / 2.0 if attempt else allowed
        counts = tuple(joined(paths, middle)[0])
        missed = sum(judge.misses(counts, 0, judge.pieces))
        note(
            f"{missed} of {allowed} missed by a schedule of {cost(counts, judge.settings.cold_start) / HOUR:.2f} replica-hours"
        )
        if missed <= allowed:
            low, best = middle, counts
        else:
            high = middle
    if best is None:
        best = tuple(joined(paths, 0.0)[0])
    return trimmed(judge, best, allowed, note)


def trimmed(judge: Judge, counts: Counts, allowed: int, note: Callable[[str], None] = lambda _: None) -> Counts:
    """Take a replica from every piece that can spare one, the largest saving first, until none can."""
    lead, least = judge.settings.cold_start, judge.track.least
    missed = sum(judge.misses(counts, 0, judge.pieces))
    while True:
        open_ = [piece for piece in range(judge.pieces) if counts[piece] > least and saving(counts, piece, lead) > 0]
        fits: list[tuple[float, int]] = []
        for piece in open_:
            extra = _extra(judge, counts, piece, 0, judge.pieces)
            if missed + extra <= allowed:
                fits.append((max(extra, 0) / saving(counts, piece, lead), piece))
        for _, piece in sorted(fits):
            fewer = tuple(count - (k == piece) for k, count in enumerate(counts))
            found = sum(judge.misses(fewer, 0, judge.pieces))
            if found <= allowed:
                counts, missed = fewer, found
                note(f"piece {piece} spares a replica: {missed} of {allowed} missed")
                break
        else:
            return counts
