"""The corpus as a table: one row per load, grouped by family."""

from collections.abc import Sequence
from statistics import median
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from sluice_sim.benchmark.corpus.plan import LoadResult
from sluice_sim.benchmark.corpus.report.bars import BARS, KEPT, families, of_family, without_family
from sluice_sim.benchmark.corpus.report.score import dominating_constant, dominating_peer, is_reachable, score_of
from sluice_sim.benchmark.run.provenance import MARK

WIDTH: Final = 170
HEADINGS: Final = (
    "SLO met", "first part", "after", "GPU-h", "after", "mean", "most", "over\nclairv.", "over\nconst.", "count",
    "its SLO", "over\npeer", "peer", "regret", "clairv.\nSLO", "from one\nSLO", "stock\n−ours",
)  # fmt: skip


def corpus_table(results: Sequence[LoadResult]) -> Table:
    """One row per load."""
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, width=WIDTH)
    shown.add_column("load", no_wrap=True)
    for heading in HEADINGS:
        shown.add_column(heading, justify="left" if heading == "peer" else "right", no_wrap=True)
    family = ""
    for result in results:
        if result.load.family != family:
            family = result.load.family
            shown.add_section()
        shown.add_row(*_row(result))
    return shown


def _row(result: LoadResult) -> list[str]:
    own, score, known = result.own, score_of(result), result.hindsight
    constant = None if score.constant is None else result.constants[score.constant]
    stock = None if result.stock is None else result.stock[1].attainment - result.constants[result.stock[0]].attainment
    return [
        f"{result.load.name}{MARK if result.other_code else ''}",
        percent(own.attainment),
        percent(own.first.attainment),
        percent(own.after.attainment),
        f"{own.gpu_hours:.2f}",
        f"{own.after.gpu_hours:.2f}",
        f"{own.replicas_mean:.1f}",
        f"{own.replicas_max}",
        ratio(score.over_clairvoyant),
        ratio(score.over_constant),
        "–" if score.constant is None else f"{score.constant}",
        percent(None if constant is None else constant.attainment),
        ratio(score.over_peer),
        score.peer or "–",
        percent(score.regret),
        percent(None if known is None else known.clairvoyant.figures.attainment),
        percent(None if known is None else known.from_fewest.figures.attainment),
        percent(stock),
    ]


def percent(value: float | None) -> str:
    """A share as text."""
    return "–" if value is None else f"{value:.2%}"


def ratio(value: float | None) -> str:
    """A ratio as text."""
    return "–" if value is None else f"{value:.2f}"


def families_table(results: Sequence[LoadResult]) -> Table:
    """The medians and verdicts of each family alone, and of all others without it."""
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, width=WIDTH)
    shown.add_column("family", no_wrap=True)
    words = ("kept", "over\nclairv.", "over\nconst.", "beaten\nby peer", "by const.")
    for heading in (*words, *(f"without it:\n{word}" if word == "kept" else word for word in words), "bars met"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for family in families(results):
        others = without_family(results, family)
        met = [bar(others) for bar in BARS]
        count = f"{sum(one.met for one in met if one)} of {sum(one is not None for one in met)}"
        shown.add_row(family, *_medians(of_family(results, family)), *_medians(others), count)
    return shown


def _medians(results: Sequence[LoadResult]) -> list[str]:
    """Kept of reachable loads, the two median ratios, and the loads on which a peer or a constant count is better."""
    reachable = [one for one in results if is_reachable(one)]
    kept = sum(one.own.attainment >= KEPT for one in reachable)
    clairvoyant = [value for one in reachable if (value := score_of(one).over_clairvoyant) is not None]
    constant = [value for one in results if (value := score_of(one).over_constant) is not None]
    return [
        f"{kept}/{len(reachable)}",
        ratio(median(clairvoyant) if clairvoyant else None),
        ratio(median(constant) if constant else None),
        str(sum(dominating_peer(one) is not None for one in results)),
        str(sum(dominating_constant(one) is not None for one in results)),
    ]
