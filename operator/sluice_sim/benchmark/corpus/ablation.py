"""What a variant of Sluice gains or loses on the corpus: a rule that is left out, or a constant halved or doubled.

A rule stays if the law without it costs more or misses more, also on the families other than the one where the rule
gains most: that family may have chosen it.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from sluice_sim.benchmark.corpus.figures import Figures, from_dict
from sluice_sim.benchmark.corpus.load import Load
from sluice_sim.benchmark.corpus.tasks import LawRun
from sluice_sim.benchmark.corpus.variants import CONSTANTS, DEFAULTS, SENSITIVE, default

LEAST_COST: Final = 0.003  # share of the GPU-hours that a rule must save …
LEAST_POINTS: Final = 0.001  # … or share of the requests that it must keep
AblationPlan = Generator[Sequence[LawRun], Sequence[dict[str, Any]], "list[Loss]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One load under the law and under the variant."""

    load: Load
    own: Figures
    variant: Figures

    @property
    def cost(self) -> float:
        """The logarithm of the variant's GPU-hours over the law's."""
        return log(self.variant.gpu_hours / self.own.gpu_hours)

    @property
    def points(self) -> float:
        """Attainment that the variant loses, as a share."""
        return self.own.attainment - self.variant.attainment


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The mean effect over some loads: GPU-hours (geometric) and attainment that the variant loses, as shares."""

    cost: float
    points: float

    @property
    def pays(self) -> bool:
        """True if the rule that the variant lacks saves enough on one figure and costs less than that on the other."""
        saves = self.cost >= LEAST_COST and self.points > -LEAST_POINTS
        keeps = self.points >= LEAST_POINTS and self.cost > -LEAST_COST
        return saves or keeps

    @property
    def trades(self) -> bool:
        """True if the rule saves enough on one figure and costs as much on the other: it buys attainment, or sells it."""
        buys = self.points >= LEAST_POINTS and self.cost <= -LEAST_COST
        sells = self.points <= -LEAST_POINTS and self.cost >= LEAST_COST
        return buys or sells


def ablation_plan(loads: Sequence[Load], own: str, variant: str) -> AblationPlan:
    """Run the law and the variant on all loads."""
    found = list(map(from_dict, (yield [LawRun(load.name, law) for load in loads for law in (own, variant)])))
    pairs = zip(loads, found[::2], found[1::2], strict=True)
    return [Loss(load=load, own=one, variant=other) for load, one, other in pairs]


def effect(losses: Sequence[Loss]) -> Effect:
    """The mean over the families of the mean over each family's loads."""
    groups: dict[str, list[Loss]] = {}
    for one in losses:
        groups.setdefault(one.load.family, []).append(one)
    cost = fmean(fmean(one.cost for one in group) for group in groups.values())
    return Effect(cost=exp(cost) - 1.0, points=fmean(fmean(one.points for one in group) for group in groups.values()))


def served_family(losses: Sequence[Loss]) -> str:
    """The family where the rule keeps most requests; where it keeps too few to count, the one where it saves most."""
    names = {one.load.family for one in losses}

    def gain(family: str) -> tuple[float, float]:
        found = effect([one for one in losses if one.load.family == family])
        return (found.points if found.points >= LEAST_POINTS else 0.0), found.cost

    return max(sorted(names), key=gain)


def ablation_table(found: Mapping[str, Sequence[Loss]]) -> Table:
    """One row per variant: its effect over all families, and over all but the one that its rule serves."""
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, width=150)
    shown.add_column("without", no_wrap=True)
    for heading in (
        "GPU-hours",
        "points",
        "serves",
        "there",
        "points",
        "elsewhere",
        "points",
        "pays",
        "pays elsewhere",
    ):
        shown.add_column(heading, justify="right", no_wrap=True)
    for variant, losses in found.items():
        family = served_family(losses)
        whole, there = effect(losses), effect([one for one in losses if one.load.family == family])
        others = [one for one in losses if one.load.family != family]
        elsewhere = effect(others) if others else None
        cells = [*_cells(whole), family, *_cells(there), *_cells(elsewhere)]
        shown.add_row(variant, *cells, _word(whole), _word(elsewhere))
    return shown


def sensitivity_table(found: Mapping[str, Sequence[Loss]]) -> Table:
    """One row per constant: its value halved and doubled, and what that does to GPU-hours and attainment."""
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, width=150)
    shown.add_column("constant", no_wrap=True)
    for heading in ("value", "halved", "GPU-hours", "points", "doubled", "GPU-hours", "points"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for constant in (*DEFAULTS, *SENSITIVE):
        names = f"{constant}-half", f"{constant}-double"
        if found.keys().isdisjoint(names):
            continue
        cells = [f"{default(constant):g}"]
        for name in names:
            losses, variant = found.get(name), CONSTANTS[name]
            value = (variant.scaling if constant in DEFAULTS else variant.constants)[constant]
            cells += [f"{value:g}", *_cells(None if losses is None else effect(losses))]
        shown.add_row(constant, *cells)
    return shown


def _cells(found: Effect | None) -> list[str]:
    """The extra GPU-hours in percent, and the change of attainment in points."""
    return ["–", "–"] if found is None else [f"{found.cost:+.2%}", f"{-100.0 * found.points:+.3f}"]


def _word(found: Effect | None) -> str:
    if found is None:
        return "–"
    return "yes" if found.pays else "trade" if found.trades else "no"
