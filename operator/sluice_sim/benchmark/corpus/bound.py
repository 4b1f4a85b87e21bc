"""What a law that begins with the fewest replicas can reach: schedules that know the load, but begin late.

A causal law has no evidence before the first requests, so until then it holds the fewest replicas. Schedules whose first
order comes after a delay show what is possible: the schedule from the fewest replicas at its cost, an ample constant count
at any cost. Where the load rises suddenly, the same holds for the rise: a schedule that keeps the count of the load before
until then, and an ample one from then on. A schedule that orders each piece's count only after the piece has begun shows
what foresight is worth.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from sluice_sim.benchmark.corpus.constants import best_attainment, cheapest_reaching, constant_fleets
from sluice_sim.benchmark.corpus.figures import Figures, from_dict
from sluice_sim.benchmark.corpus.hindsight import hindsight
from sluice_sim.benchmark.corpus.laws import LATE_RISE, LATE_START, UNFORESEEN, sudden_rise
from sluice_sim.benchmark.corpus.load import Load
from sluice_sim.benchmark.corpus.report.bars import KEPT
from sluice_sim.benchmark.corpus.tasks import LawRun
from sluice_sim.benchmark.search.knob import TARGET
from sluice_sim.benchmark.search.schedule import PIECE

DELAYS: Final = (15.0, 30.0, 60.0)  # seconds before the first order
BEHIND: Final = 30.0  # seconds of a piece before its count is ordered, without foresight
BoundPlan = Generator[Sequence[LawRun], Sequence[dict[str, Any]], "Bound | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One load on which the schedule from the fewest replicas reaches the target. Mappings are by delay in seconds."""

    load: Load
    own: Figures
    from_fewest: Figures
    late: Mapping[float, Figures]  # that schedule, begun late
    ample: Mapping[float, Figures]  # the smallest best constant count, begun late, where the schedule keeps too little
    rise: Mapping[float, Figures]  # ample from a sudden rise on, ordered late; empty without such a rise
    unforeseen: Figures

    def possible(self, delay: float) -> float:
        """About the most that a law can reach that needs `delay` seconds of a new load to order, at any cost.

        Before a sudden rise it holds no more than the load before needed."""
        found = max(one.attainment for one in (self.late[delay], self.ample.get(delay)) if one is not None)
        return min(found, self.rise[delay].attainment) if delay in self.rise else found


def bound_plan(load: Load, own: str) -> BoundPlan:
    """Run the late schedules of a load; None if the schedule from the fewest replicas misses the target."""
    constants = yield from constant_fleets(load)
    known = yield from hindsight(load, constants)
    counts, from_fewest = known.from_fewest.counts, known.from_fewest.figures
    if from_fewest.attainment < TARGET:
        return None
    most = cheapest_reaching(constants, best_attainment(constants)) or load.most
    late = yield from _late(LATE_START, load, counts, DELAYS)
    poor = [delay for delay in DELAYS if late[delay].attainment < KEPT]
    ample = yield from _late(LATE_START, load, (most,) * len(counts), poor)
    rise: dict[float, Figures] = {}
    if (risen := sudden_rise(load)) is not None:
        begun = int(risen / PIECE)
        answered = *counts[:begun], *(max(most, count) for count in counts[begun:])
        rise = yield from _late(LATE_RISE, load, answered, DELAYS)
    unforeseen, ours = yield [
        LawRun(load.name, UNFORESEEN, BEHIND, counts=counts, from_fewest=True),
        LawRun(load.name, own),
    ]
    return Bound(
        load=load,
        own=from_dict(ours),
        from_fewest=from_fewest,
        late=late,
        ample=ample,
        rise=rise,
        unforeseen=from_dict(unforeseen),
    )


def _late(
    law: str, load: Load, counts: tuple[int, ...], delays: Sequence[float]
) -> Generator[Sequence[LawRun], Sequence[dict[str, Any]], dict[float, Figures]]:
    """The late schedule with each of the delays."""
    found = yield [LawRun(load.name, law, delay, counts=counts, from_fewest=True) for delay in delays]
    return dict(zip(delays, map(from_dict, found), strict=True))


def bound_text(bounds: Sequence[Bound]) -> str:
    """The table of the loads, and how many of them each kind of law can keep."""
    kept = Console(width=120, record=True, file=StringIO())
    kept.print(_table(bounds))
    for sentence in sentences(bounds):
        kept.print(sentence, highlight=False, soft_wrap=True)
    return kept.export_text()


def sentences(bounds: Sequence[Bound]) -> list[str]:
    """How many of the loads each kind of law keeps, as sentences."""
    found = [f"On {len(bounds)} loads the schedule from the fewest replicas, ordering at t = 0, reaches {TARGET:.0%}."]
    for delay in DELAYS:
        cheap = sum(one.late[delay].attainment >= KEPT for one in bounds)
        best = sum(one.possible(delay) >= KEPT for one in bounds)
        found.append(
            f"With its first order at {delay:g} s it keeps {KEPT:.1%} on {cheap} of them. A law without regard to cost, whose "
            f"orders come {delay:g} s after the start and after a sudden rise, can keep it on {best}."
        )
    unforeseen = sum(one.unforeseen.attainment >= KEPT for one in bounds)
    ours = sum(one.own.attainment >= KEPT for one in bounds)
    found.append(
        f"If each piece's count is ordered {BEHIND:g} s after the piece has begun: {unforeseen}. Sluice: {ours}."
    )
    return found


def _table(bounds: Sequence[Bound]) -> Table:
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    shown.add_column("load", no_wrap=True)
    begun = [f"first at {delay:g} s" for delay in DELAYS]
    for heading in ("Sluice", "from one", *begun, *(f"possible, {delay:g} s" for delay in DELAYS), "unforeseen"):
        shown.add_column(heading, justify="right")
    for one in bounds:
        late = [one.late[delay].attainment for delay in DELAYS]
        possible = [one.possible(delay) for delay in DELAYS]
        found = [one.own.attainment, one.from_fewest.attainment, *late, *possible, one.unforeseen.attainment]
        shown.add_row(one.load.name, *(f"{cell:.2%}" for cell in found))
    return shown
