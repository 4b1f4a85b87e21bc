"""How the clairvoyant is found, as a plan whose tasks both processors share and of which each is stored as it ends."""

import itertools
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sluice_sim.tracks.clairvoyant import HELPS, WINDOW_PIECES, Table, cheapest, raised
from sluice_sim.tracks.job import CLAIRVOYANT, Job
from sluice_sim.tracks.judge import AFTER, WARM
from sluice_sim.tracks.knob import TARGET
from sluice_sim.tracks.schedule import PIECE, Counts, cost, last_piece, saving, without
from sluice_sim.tracks.tasks import Bound, Search, Spare, Task, Whole, table_of
from sluice_sim.tracks.track import Track, WindowName
from sluice_sim.tracks.variants import VARIANTS

Found = dict[str, Any]
Plan = Generator[Sequence[Task], Sequence[Found], Any]
CORRECTIONS: Final = 5  # of the tables by whole runs, at most
CONFIRMED: Final = 12  # pieces whose loss is tried in a run of the whole at least: those that could nearest be spared
AT_ONCE: Final = 6  # of these
MOST_CONFIRMED: Final = 48  # the same at most: a run of a whole day takes a minute
DOUBT: Final = 32  # requests more than twice what may still be missed: so far a look around a piece is not believed
SINGLES: Final = 2  # removals that are tried at once, each by itself


@dataclass(frozen=True, slots=True)
class Clairvoyant:
    """The denominator, and the bound below it."""

    track: str
    counts: Counts
    found: Found
    bound: float

    @property
    def gpu_hours(self) -> float:
        """From bind to release."""
        return float(self.found["gpu_hours"])


@dataclass(frozen=True, slots=True)
class _Tried:
    """A schedule and what each of its pieces missed in a run of the whole."""

    counts: Counts
    missed: tuple[int, ...]

    @property
    def total(self) -> int:
        """Requests missed."""
        return sum(self.missed)


def clairvoyant(track: Track, window: WindowName, variant: str = "plain") -> Plan:
    """Tables of all three-hour windows, the cheapest schedule that they allow, runs of the whole, removals. Returns a
    Clairvoyant; one below 99 % where the most replicas do not reach it."""
    search = _Hindsight(track, window, variant)
    tables: Table = yield from search.tables()
    tried = yield from search.corrected(tables)
    if tried.total > search.allowed:
        tried = yield from search.repaired(tried)
    if tried.total <= search.allowed:
        tried = yield from search.trimmed(tried)
    job = Job(track=track.name, window=window, law=CLAIRVOYANT, counts=tried.counts, variant=variant, series=True)
    found, bound = yield [job, Bound(track.name, window)]
    return Clairvoyant(track.name, tried.counts, found, float(bound["gpu_hours"]))


class _Hindsight:
    """One search: `allowed` requests may be missed."""

    def __init__(self, track: Track, window: WindowName, variant: str) -> None:
        self._name, self._window, self._variant = track.name, window, variant
        self._least, self._most = track.least, track.most
        self._lead = VARIANTS[variant](track.settings()).cold_start
        seconds = track.window(window).seconds
        pieces = max(1, -int(-seconds // PIECE))
        self._last = last_piece(seconds)
        self._spans = list(itertools.pairwise([*range(0, pieces, WINDOW_PIECES), pieces]))
        self.allowed = 0

    def tables(self) -> Plan:
        """Of all windows, joined. Returns a Table."""
        found = yield [Search(self._name, self._window, self._variant, first, end) for first, end in self._spans]
        self.allowed = math.floor((1.0 - TARGET) * sum(sum(one["offered"]) for one in found) + 1e-9)
        return tuple(itertools.chain.from_iterable(table_of(one) for one in found))

    def corrected(self, tables: Table) -> Plan:
        """The cheapest schedule by the tables that keeps the target in a run of the whole, which corrects them; where none
        does, the one that came nearest. Returns a _Tried."""
        tried: dict[Counts, _Tried] = {}
        for _ in range(CORRECTIONS):
            counts = cheapest(tables, self.allowed, self._lead, self._last)
            if counts in tried:
                break
            (tried[counts],) = yield from self._wholes([counts])
            for options, count, missed in zip(tables, counts, tried[counts].missed, strict=True):
                options[count] = missed
        return min(tried.values(), key=self._rank)

    def repaired(self, tried: _Tried) -> Plan:
        """More replicas where most is missed, until few enough are or nothing helps: whatever lowers the whole is kept, and
        what does not is not tried again, so each round comes nearer or closes a piece. Returns a _Tried."""
        hopeless: set[tuple[int, int]] = set()
        while tried.total > self.allowed:
            more = raised(tried.counts, tried.missed, tried.total - self.allowed, self._most, hopeless)
            if more == tried.counts:
                break
            (found,) = yield from self._wholes([more])
            got = [(piece, count) for piece, count in enumerate(tried.counts) if more[piece] > count]
            if found.total < tried.total:
                tried = found
            else:  # those that did not help even themselves, or, where all only moved their misses elsewhere, all
                vain = {one for one in got if found.missed[one[0]] > HELPS * tried.missed[one[0]]}
                hopeless.update(vain or got)
        return tried

    def trimmed(self, tried: _Tried) -> Plan:
        """Take replicas away until no piece can lose one. What each piece's loss would cost is looked at around it
        (`Judge.spare`), and whatever seems possible is decided by a run of the whole; where nothing seems possible, all
        that come near, CONFIRMED at least and MOST_CONFIRMED at most, are run as a whole all the same. Returns a _Tried."""
        refused: set[Counts] = set()
        while True:
            slack = self.allowed - tried.total
            extra = yield from self._extras(tried.counts, slack)
            asked = self._choices(tried.counts, extra, slack, refused)
            if not asked:
                ordered = sorted(extra, key=lambda piece: (extra[piece], piece))
                near = [k for at, k in enumerate(ordered) if at < CONFIRMED or extra[k] < 2 * slack + DOUBT]
                single = [without(tried.counts, (piece,)) for piece in near[:MOST_CONFIRMED]]
                asked = [counts for counts in single if counts not in refused][:AT_ONCE]
            if not asked:
                return tried
            found: list[_Tried] = yield from self._wholes(asked)
            best = min(found, key=self._rank)
            if best.total <= self.allowed:
                tried = best
            refused.update(asked)

    def _choices(self, counts: Counts, extra: dict[int, int], slack: int, refused: set[Counts]) -> list[Counts]:
        """Schedules to run: all removals that seem to fit together, else some of them each by itself."""
        fits = [piece for piece in extra if extra[piece] <= slack]
        ordered = sorted(fits, key=lambda k: (max(0, extra[k]) / saving(counts, k, self._lead, self._last), k))
        together: list[int] = []
        for piece in ordered:
            spent = sum(max(0, extra[other]) for other in together)
            if spent + max(0, extra[piece]) <= slack and all(abs(piece - other) > 1 for other in together):
                together.append(piece)
        while len(together) > 1:
            fewer = without(counts, together)
            if fewer not in refused:
                return [fewer]
            together = together[: len(together) // 2]
        singles = [without(counts, (piece,)) for piece in ordered]
        return [one for one in singles if one not in refused][:SINGLES]

    def _extras(self, counts: Counts, slack: int) -> Plan:
        """Misses in addition by piece, for pieces that have a replica to lose. Returns a dict."""
        limit = 1 << math.ceil(math.log2(2 * slack + DOUBT))  # of few values: what is stored is found again
        found = yield [
            Spare(self._name, self._window, self._variant, self._around(counts, first, end), first, end, limit)
            for first, end in self._spans
        ]
        flat = itertools.chain.from_iterable(one["extra"] for one in found)
        return {piece: extra for piece, extra in enumerate(flat) if extra is not None}

    def _around(self, counts: Counts, first: int, end: int) -> Counts:
        """The schedule with zeros where a look at [first, end) does not look."""
        return tuple(count if first - WARM - 1 <= k < end + AFTER + 1 else 0 for k, count in enumerate(counts))

    def _wholes(self, asked: Sequence[Counts]) -> Plan:
        """Run schedules as a whole. Returns a list of _Tried."""
        found = yield [Whole(self._name, self._window, self._variant, counts) for counts in asked]
        return [_Tried(counts, tuple(one["missed"])) for counts, one in zip(asked, found, strict=True)]

    def _rank(self, tried: _Tried) -> tuple[int, float, int]:
        over = max(0, tried.total - self.allowed)
        return over, cost(tried.counts, self._lead, self._last), tried.total
