"""Schedules that know the load: the clairvoyant, and the one that begins as a law does. Both are upper bounds.

A schedule has a count per piece of five minutes, launched one cold start early. The constant fleets give a table of
misses per piece and count; `miss_tables.cheapest` solves it exactly, runs of the whole schedule correct it, replicas
are added where a schedule misses too much, and removed where the table says that few requests need them. The number of
runs is bounded, and a feasible schedule is not proven optimal: its cost is an upper bound of the least cost.

The clairvoyant begins with the count of its first piece. The other schedule begins with the load's fewest replicas and
orders first at t = 0, as a law can: it has the misses that no law avoids.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from sluice_sim.benchmark.corpus.constants import Constants, best_attainment, cheapest_reaching
from sluice_sim.benchmark.corpus.figures import Figures, from_dict
from sluice_sim.benchmark.corpus.laws import SCHEDULE
from sluice_sim.benchmark.corpus.load import Load
from sluice_sim.benchmark.corpus.tasks import LawRun
from sluice_sim.benchmark.search.knob import TARGET
from sluice_sim.benchmark.search.miss_tables import Table, cheapest, raised
from sluice_sim.benchmark.search.schedule import Counts, last_piece, seconds_saved, with_removals

CORRECTIONS: Final = 6  # runs of the table's cheapest schedule, at most
REPAIRS: Final = 4  # runs with more replicas where requests are missed, at most
REMOVALS: Final = 4  # runs with fewer replicas where few requests are missed, at most
WORTHWHILE: Final = 0.95  # share of the excess misses that a repair may leave
UNREACHABLE_SLACK: Final = 0.001  # share of requests that may be missed beyond the fewest if the target is out of reach
SchedulePlan = Generator[Sequence[LawRun], Sequence[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule and the figures of its run. `allowed`: the requests that it was searched to miss, at most."""

    counts: Counts
    figures: Figures
    allowed: int

    @property
    def excess(self) -> int:
        """Misses beyond those allowed."""
        return max(0, self.figures.whole.missed - self.allowed)

    @property
    def rank(self) -> tuple[int, float]:
        """Schedules in order of preference: the fewest excess misses, then the least cost."""
        return self.excess, self.figures.gpu_hours


@dataclass(frozen=True, slots=True)
class Hindsight:
    """The clairvoyant, and the schedule that begins with the fewest replicas."""

    clairvoyant: Schedule
    from_fewest: Schedule


def hindsight(load: Load, constants: Constants) -> SchedulePlan:
    """Search both schedules. Returns a Hindsight."""
    offered = next(iter(constants.values())).whole.offered
    allowed = math.floor((1.0 - TARGET) * offered + 1e-9)
    fewest = min(found.whole.missed for found in constants.values())
    if fewest > allowed:
        allowed = fewest + math.floor(UNREACHABLE_SLACK * offered)
    search = _Search(load, allowed)
    known = yield from search.clairvoyant(table_of(constants))
    from_fewest = yield from search.from_fewest(known, constants)
    return Hindsight(known, from_fewest)


def table_of(constants: Mapping[int, Figures]) -> Table:
    """Per piece: replicas → requests missed, linear in between two counts that were run."""
    pieces = len(next(iter(constants.values())).missed)
    table: Table = tuple({} for _ in range(pieces))
    for piece, options in enumerate(table):
        for low, high in pairwise(sorted(constants)):
            before, after = constants[low].missed[piece], constants[high].missed[piece]
            for count in range(low, high + 1):
                options[count] = math.ceil(before + (after - before) * (count - low) / (high - low))
        if not options:
            options |= {count: found.missed[piece] for count, found in constants.items()}
    return table


class _Search:
    """One load's searches; at most `allowed` requests may be missed."""

    def __init__(self, load: Load, allowed: int) -> None:
        self._load, self._allowed = load, allowed
        self._last = last_piece(load.seconds)

    def clairvoyant(self, table: Table) -> SchedulePlan:
        """The table's cheapest schedule, corrected, repaired and trimmed. Returns a Schedule."""
        tried: dict[Counts, Schedule] = {}
        for _ in range(CORRECTIONS):
            counts = cheapest(table, self._allowed, self._load.cold_start, self._last)
            if counts in tried:
                break
            tried[counts] = yield from self._run(counts)
            for options, count, missed in zip(table, counts, tried[counts].figures.missed, strict=True):
                options[count] = missed
        best = min(tried.values(), key=lambda one: one.rank)
        best = yield from self._repaired(best, from_fewest=False)
        return (yield from self._trimmed(best, table))

    def from_fewest(self, known: Schedule, constants: Constants) -> SchedulePlan:
        """The clairvoyant's schedule begun with the fewest replicas, repaired; or an ample count if that misses less.

        Returns a Schedule."""
        begun = yield from self._run(known.counts, from_fewest=True)
        repaired = yield from self._repaired(begun, from_fewest=True)
        if not repaired.excess:
            return repaired
        ample = cheapest_reaching(constants, best_attainment(constants)) or self._load.most
        constant = yield from self._run((ample,) * len(known.counts), from_fewest=True)
        return min(repaired, constant, key=lambda one: one.rank)

    def _repaired(self, best: Schedule, *, from_fewest: bool) -> SchedulePlan:
        """Add replicas where most requests are missed, until few enough are. Returns a Schedule."""
        ineffective: set[tuple[int, int]] = set()
        for _ in range(REPAIRS):
            if not best.excess:
                break
            more = raised(best.counts, best.figures.missed, best.excess, self._load.most, ineffective)
            if more == best.counts:
                break
            found = yield from self._run(more, from_fewest=from_fewest)
            if found.excess <= WORTHWHILE * best.excess:
                best = found
            else:
                ineffective |= {(k, count) for k, count in enumerate(best.counts) if more[k] > count}
        return best

    def _trimmed(self, best: Schedule, table: Table) -> SchedulePlan:
        """Remove one replica from the pieces where that costs the fewest misses, while few enough are missed.

        A removal that costs too much is tried again in half as many pieces. Returns a Schedule."""
        share = 1.0
        for _ in range(REMOVALS):
            pieces = self._removable(best, table)
            pieces = pieces[: math.ceil(share * len(pieces))]
            if best.excess or not pieces:
                break
            found = yield from self._run(with_removals(best.counts, pieces))
            if found.rank < best.rank:
                best = found
            else:
                share /= 2.0
        return best

    def _removable(self, best: Schedule, table: Table) -> list[int]:
        """Pieces that can lose a replica within the slack by the table, those with the fewest additional misses first."""
        slack, counts = self._allowed - best.figures.whole.missed, best.counts
        extra: dict[int, int] = {}
        for piece, (count, options) in enumerate(zip(counts, table, strict=True)):
            fewer = options.get(count - 1)
            saves = count > self._load.least and seconds_saved(counts, piece, self._load.cold_start, self._last) > 0
            if fewer is not None and saves:
                extra[piece] = max(0, fewer - best.figures.missed[piece])
        chosen, spent = [], 0
        for piece in sorted(extra, key=lambda k: (extra[k], k)):
            spent += extra[piece]
            if spent > slack:
                break
            chosen.append(piece)
        return chosen

    def _run(self, counts: Counts, *, from_fewest: bool = False) -> SchedulePlan:
        (found,) = yield [LawRun(self._load.name, SCHEDULE, counts=counts, from_fewest=from_fewest)]
        return Schedule(counts, from_dict(found), self._allowed)
