"""The search for the clairvoyant schedule: the denominator of every law's GPU-hours.

"Clairvoyant" is the scheduling literature's word for an algorithm that knows all future arrivals (Buttazzo, "Hard
Real-Time Computing Systems"). The cheapest schedule of the tables is run as a whole, its misses correct the tables, and
the search repeats. A schedule that misses too much gets replicas where it misses most. In the final schedule no piece
can lose a replica without missing the attainment target. It is feasible and not proven optimal. The search is a plan:
its tasks run on all processors, and each result is stored when its task ends.
"""

import itertools
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sluice_sim.benchmark.run.job import CLAIRVOYANT, Job
from sluice_sim.benchmark.run.tasks import MissTableTask, RemovalTask, ScheduleRunTask, Task, WorkBoundTask, table_of
from sluice_sim.benchmark.search.knob import TARGET
from sluice_sim.benchmark.search.miss_counter import RECOVERY_PIECES, WARM_UP_PIECES
from sluice_sim.benchmark.search.miss_tables import MAX_REMAINING_SHARE, WINDOW_PIECES, Table, cheapest, raised
from sluice_sim.benchmark.search.schedule import PIECE, Counts, cost, last_piece, seconds_saved, with_removals
from sluice_sim.benchmark.track import Track, WindowName
from sluice_sim.benchmark.variants import VARIANTS

TaskResult = dict[str, Any]
Plan = Generator[Sequence[Task], Sequence[TaskResult], Any]
CORRECTIONS: Final = 5  # of the tables by runs of the whole, at most
# Least number of pieces, those nearest to spare, whose removal is tried in a run of the whole.
MIN_CONFIRMATIONS: Final = 12
AT_ONCE: Final = 6  # of these, per round
MAX_CONFIRMATIONS: Final = 48  # upper bound of the same: a run of a whole day takes a minute
# Requests beyond twice the slack up to which the estimate of a local simulation is not conclusive.
INCONCLUSIVE_EXCESS: Final = 32
SINGLE_REMOVALS: Final = 2  # removals tried at once, each in a run of its own


@dataclass(frozen=True, slots=True)
class Clairvoyant:
    """The denominator of R99, and the work bound below it."""

    track: str
    counts: Counts
    result: TaskResult
    bound: float

    @property
    def gpu_hours(self) -> float:
        """GPU-hours from bind to release."""
        return float(self.result["gpu_hours"])


@dataclass(frozen=True, slots=True)
class _ScheduleTrial:
    """A schedule and the misses of each piece in a run of the whole."""

    counts: Counts
    missed: tuple[int, ...]

    @property
    def total(self) -> int:
        """Missed requests in total."""
        return sum(self.missed)


def clairvoyant(track: Track, window: WindowName, variant: str = "plain") -> Plan:
    """Tables of all three-hour windows, the cheapest schedule that they allow, runs of the whole, removals.

    Returns a Clairvoyant. Its attainment is below 99 % if even the most replicas do not reach the target.
    """
    search = _ClairvoyantSearch(track, window, variant)
    tables: Table = yield from search.tables()
    tried = yield from search.corrected(tables)
    if tried.total > search.allowed:
        tried = yield from search.repaired(tried)
    if tried.total <= search.allowed:
        tried = yield from search.trimmed(tried)
    job = Job(track=track.name, window=window, law=CLAIRVOYANT, counts=tried.counts, variant=variant, series=True)
    found, bound = yield [job, WorkBoundTask(track.name, window)]
    return Clairvoyant(track.name, tried.counts, found, float(bound["gpu_hours"]))


class _ClairvoyantSearch:
    """One search; at most `allowed` requests may be missed."""

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
        """The tables of all windows, joined. Returns a Table."""
        found = yield [MissTableTask(self._name, self._window, self._variant, first, end) for first, end in self._spans]
        self.allowed = math.floor((1.0 - TARGET) * sum(sum(one["offered"]) for one in found) + 1e-9)
        return tuple(itertools.chain.from_iterable(table_of(one) for one in found))

    def corrected(self, tables: Table) -> Plan:
        """The cheapest schedule by the tables that reaches the target in a run of the whole, which corrects the tables.

        If none reaches it, the one with the fewest excess misses. Returns a _Tried.
        """
        tried: dict[Counts, _ScheduleTrial] = {}
        for _ in range(CORRECTIONS):
            counts = cheapest(tables, self.allowed, self._lead, self._last)
            if counts in tried:
                break
            (tried[counts],) = yield from self._run_schedules([counts])
            for options, count, missed in zip(tables, counts, tried[counts].missed, strict=True):
                options[count] = missed
        return min(tried.values(), key=self._rank)

    def repaired(self, tried: _ScheduleTrial) -> Plan:
        """Add replicas where most requests are missed, until the target is reached or nothing helps. Returns a _Tried.

        An addition that lowers the total is kept; one that does not is not tried again. So each round makes progress or
        excludes a pair of piece and count.
        """
        ineffective: set[tuple[int, int]] = set()
        while tried.total > self.allowed:
            more = raised(tried.counts, tried.missed, tried.total - self.allowed, self._most, ineffective)
            if more == tried.counts:
                break
            (found,) = yield from self._run_schedules([more])
            got = [(piece, count) for piece, count in enumerate(tried.counts) if more[piece] > count]
            if found.total < tried.total:
                tried = found
            else:  # exclude the pieces without improvement; if all improved and only moved their misses, exclude all
                vain = {one for one in got if found.missed[one[0]] > MAX_REMAINING_SHARE * tried.missed[one[0]]}
                ineffective.update(vain or got)
        return tried

    def trimmed(self, tried: _ScheduleTrial) -> Plan:
        """Remove replicas until no piece can lose one. Returns a _Tried.

        The cost of each removal is estimated by a local simulation (`MissCounter.removal_costs`), and every removal that seems
        possible is decided by a run of the whole. If none seems possible, the nearest ones, CONFIRMED at least and
        MOST_CONFIRMED at most, are run as a whole nevertheless.
        """
        refused: set[Counts] = set()
        while True:
            slack = self.allowed - tried.total
            extra = yield from self._removal_costs(tried.counts, slack)
            asked = self._candidates(tried.counts, extra, slack, refused)
            if not asked:
                ordered = sorted(extra, key=lambda piece: (extra[piece], piece))
                near = [
                    k
                    for at, k in enumerate(ordered)
                    if at < MIN_CONFIRMATIONS or extra[k] < 2 * slack + INCONCLUSIVE_EXCESS
                ]
                single = [with_removals(tried.counts, (piece,)) for piece in near[:MAX_CONFIRMATIONS]]
                asked = [counts for counts in single if counts not in refused][:AT_ONCE]
            if not asked:
                return tried
            found: list[_ScheduleTrial] = yield from self._run_schedules(asked)
            best = min(found, key=self._rank)
            if best.total <= self.allowed:
                tried = best
            refused.update(asked)

    def _candidates(self, counts: Counts, extra: dict[int, int], slack: int, refused: set[Counts]) -> list[Counts]:
        """Schedules to run: all removals that seem to fit together, else some removals one by one."""
        fits = [piece for piece in extra if extra[piece] <= slack]
        ordered = sorted(fits, key=lambda k: (max(0, extra[k]) / seconds_saved(counts, k, self._lead, self._last), k))
        together: list[int] = []
        for piece in ordered:
            spent = sum(max(0, extra[other]) for other in together)
            if spent + max(0, extra[piece]) <= slack and all(abs(piece - other) > 1 for other in together):
                together.append(piece)
        while len(together) > 1:
            fewer = with_removals(counts, together)
            if fewer not in refused:
                return [fewer]
            together = together[: len(together) // 2]
        singles = [with_removals(counts, (piece,)) for piece in ordered]
        return [one for one in singles if one not in refused][:SINGLE_REMOVALS]

    def _removal_costs(self, counts: Counts, slack: int) -> Plan:
        """Additional misses by piece, for pieces that have a replica to lose. Returns a dict."""
        # a power of two takes few values, so that stored results are found again
        limit = 1 << math.ceil(math.log2(2 * slack + INCONCLUSIVE_EXCESS))
        found = yield [
            RemovalTask(self._name, self._window, self._variant, self._around(counts, first, end), first, end, limit)
            for first, end in self._spans
        ]
        flat = itertools.chain.from_iterable(one["extra"] for one in found)
        return {piece: extra for piece, extra in enumerate(flat) if extra is not None}

    def _around(self, counts: Counts, first: int, end: int) -> Counts:
        """The schedule with zeros where a local simulation of [first, end) does not reach."""
        return tuple(
            count if first - WARM_UP_PIECES - 1 <= k < end + RECOVERY_PIECES + 1 else 0
            for k, count in enumerate(counts)
        )

    def _run_schedules(self, asked: Sequence[Counts]) -> Plan:
        """Run schedules as a whole. Returns a list of _Tried."""
        found = yield [ScheduleRunTask(self._name, self._window, self._variant, counts) for counts in asked]
        return [_ScheduleTrial(counts, tuple(one["missed"])) for counts, one in zip(asked, found, strict=True)]

    def _rank(self, tried: _ScheduleTrial) -> tuple[int, float, int]:
        over = max(0, tried.total - self.allowed)
        return over, cost(tried.counts, self._lead, self._last), tried.total
