"""The corpus as a table: one row per load, grouped by family."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from sluice_sim.benchmark.corpus.plan import LoadResult
from sluice_sim.benchmark.corpus.score import score_of
from sluice_sim.benchmark.run.provenance import MARK

WIDTH = 170
HEADINGS = (
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
