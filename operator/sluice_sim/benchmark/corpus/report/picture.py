"""The picture of one load under Sluice, and a bar picture of the corpus. Needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sluice_sim.benchmark.corpus.arrivals import arrivals_of
from sluice_sim.benchmark.corpus.laws import law_named
from sluice_sim.benchmark.corpus.load import Load
from sluice_sim.benchmark.corpus.plan import LoadResult
from sluice_sim.benchmark.corpus.report.score import score_of
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.collector import uncollected
from sluice_sim.results.picture import BLUE, GREY, ORANGE, draw
from sluice_sim.results.summary import summarise
from sluice_sim.results.table import sentence


def draw_load(load: Load, law: str, target: Path) -> None:
    """Run the law on the load and draw demand, replicas, attainment, memory and limits. Raises NoPicture."""
    with uncollected():
        run = Fleet(load.spec(), load.settings(), law_named(law)).run(arrivals_of(load))
    target.parent.mkdir(parents=True, exist_ok=True)
    summary = sentence(summarise(run, load.gpus), load.spec())
    draw(run, load.spec(), f"{load.name} under {law}: {summary}", target)


def draw_corpus(results: Sequence[LoadResult], target: Path) -> None:
    """Attainment and cost of every load: Sluice beside the clairvoyant and the best constant count."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 0.22 * len(results) + 1.5), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    places = [-place for place in range(len(results))]
    axes[0].set_yticks(places, [one.load.name for one in results], fontsize=7)
    axes[0].barh(places, [100.0 * one.own.after.attainment for one in results], color=BLUE, height=0.4)
    axes[0].barh(
        [place - 0.4 for place in places],
        [100.0 * one.own.first.attainment for one in results],
        color=GREY,
        height=0.25,
    )
    axes[0].axvline(99.0, color="black", linewidth=0.8)
    axes[0].set_xlim(60.0, 100.4)
    axes[0].set_title("SLO met, %: after the first part (blue) and in it (grey)", loc="left", fontsize=9)
    scores = [score_of(one) for one in results]
    _ratios(axes[1], places, [one.over_clairvoyant for one in scores], BLUE)
    _ratios(axes[1], [place - 0.4 for place in places], [one.over_constant for one in scores], ORANGE)
    axes[1].axvline(1.0, color="black", linewidth=0.8)
    axes[1].set_xlim(0.0, 3.0)
    axes[1].set_title("GPU-hours over the clairvoyant's (blue), the best constant's (orange)", loc="left", fontsize=9)
    for axis in axes:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110)


def _ratios(axis: Any, places: Sequence[float], values: Sequence[float | None], color: str) -> None:
    axis.barh(places, [value or 0.0 for value in values], color=color, height=0.35)
