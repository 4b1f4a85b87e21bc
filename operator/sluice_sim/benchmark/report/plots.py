"""Plots of the score: attainment over GPU-hours per law, and the dials over time. Needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sluice_sim.benchmark.report.table import OWN, TrackScore, failed, ratio
from sluice_sim.benchmark.run.plan import LawScore
from sluice_sim.benchmark.search.clairvoyant import TaskResult
from sluice_sim.results.picture import BLUE, GREEN, GREY, ORANGE

LONGEST: Final = 4.0  # largest R99 that a bar shows; its label has the full number


def draw(scores: Sequence[TrackScore], folder: Path) -> tuple[Path, ...]:
    """Write all plots into the folder and return their paths. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    known = [score for score in scores if score.clairvoyant is not None and score.laws]
    written: list[Path] = []

    def save(figure: Any, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f"{name}.png", dpi=110)
        written.append(folder / f"{name}.png")

    if known:
        figure = Figure(figsize=(6.2 * min(2, len(known)), 4.6 * -(-len(known) // 2)), layout="constrained")
        axes = figure.subplots(-(-len(known) // 2), min(2, len(known)), squeeze=False)
        for axis, score in zip(axes.flat, known, strict=False):
            _frontier(axis, score)
        for axis in list(axes.flat)[len(known) :]:
            axis.set_visible(False)
        save(figure, "frontier")
        figure = Figure(figsize=(11, 0.3 * sum(len(score.laws) + 2 for score in known) + 1), layout="constrained")
        axes = figure.subplots(len(known), 1, squeeze=False, height_ratios=[len(score.laws) + 1 for score in known])
        for axis, score in zip(axes.flat, known, strict=True):
            _bars(axis, score)
        save(figure, "r99")
    for score in known:
        figure = Figure(figsize=(11, 7), layout="constrained")
        _dials(figure.subplots(3, 1, sharex=True, height_ratios=(1.2, 2, 1.3)), score)
        save(figure, f"dials-{score.track.name}")
    robust = [score for score in scores if score.robust]
    if robust:
        figure = Figure(figsize=(11, 4.2 * len(robust)), layout="constrained")
        for axis, score in zip(figure.subplots(len(robust), 1, squeeze=False).flat, robust, strict=True):
            _robust(axis, score)
        save(figure, "robust")
    return tuple(written)


def _frontier(axis: Any, score: TrackScore) -> None:
    """Attainment over GPU-hours, with one line per law along its knob."""
    if score.clairvoyant is None:
        return
    unit = score.clairvoyant.gpu_hours
    for one in score.laws:
        points = [(tried.gpu_hours / unit, 100.0 * tried.attainment) for tried in one.curve]
        own = one.law == "sluice"
        axis.plot(*zip(*points, strict=True), marker="o", markersize=5 if own else 3, linewidth=2.2 if own else 0.9,
                  color=BLUE if own else None, alpha=1.0 if own else 0.65, zorder=3 if own else 2, label=one.law)  # fmt: skip
    axis.plot([1.0], [100.0 * score.clairvoyant.result["attainment"]], marker="*", markersize=13, color="black",
              linestyle="", label="clairvoyant", zorder=4)  # fmt: skip
    axis.axhline(99.0, color=GREY, linewidth=0.8)
    axis.set_xlim(0.8, 2.2)
    axis.set_ylim(85.0, 100.3)
    axis.set_xlabel("GPU-hours / clairvoyant")
    axis.set_ylabel("good requests, %")
    axis.set_title(f"{score.track.name}: {score.track.words}", loc="left", fontsize=9)
    axis.grid(alpha=0.25)
    axis.legend(fontsize=6, ncol=2, loc="lower right")


def _bars(axis: Any, score: TrackScore) -> None:
    """R99 of each tuned law; a law that fails has the label "fails"."""
    laws = sorted(score.laws, key=lambda one: (failed(score, one.gpu_hours), one.gpu_hours or 0.0), reverse=True)
    for place, one in enumerate(laws):
        value = None if failed(score, one.gpu_hours) else ratio(one.gpu_hours, score)
        color = BLUE if one.law == "sluice" else GREEN if one.law in OWN else ORANGE
        end = min(value or 0.0, LONGEST)
        axis.barh(place, end, color=color)
        axis.text(end + 0.01, place, "fails" if value is None else f"{value:.2f}", va="center", fontsize=8)
    axis.set_yticks(range(len(laws)), [one.law for one in laws], fontsize=8)
    axis.axvline(1.0, color="black", linewidth=0.8)
    axis.set_xlim(0, LONGEST)
    axis.set_title(f"{score.track.name}: GPU-hours at 99 % good / clairvoyant, each law tuned", loc="left", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)


def _dials(axes: Any, score: TrackScore) -> None:
    """Load, replicas and attainment over the test window: clairvoyant, sluice at its defaults, the best tuned peer."""
    if score.clairvoyant is None:
        return
    peers = [one for one in score.laws if one.law not in OWN and one.gpu_hours is not None]
    best: LawScore | None = min(peers, key=lambda one: one.gpu_hours or 0.0, default=None)
    own = next((one for one in score.laws if one.law == "sluice"), None)
    lines: list[tuple[str, str, TaskResult]] = [("clairvoyant", "black", score.clairvoyant.result)]
    if best is not None:
        lines.append((f"{best.law} (tuned)", ORANGE, best.tuned.result))
    if own is not None:
        lines.append(("sluice (defaults)", BLUE, own.default))
    for words, color, result in lines:
        if not result["series"]:
            continue
        step = result["seconds"] / len(result["series"]) / 60.0
        at = [(k + 0.5) * step for k in range(len(result["series"]))]
        axes[1].step(at, [row[0] for row in result["series"]], where="mid", color=color, label=words, linewidth=1.3)
        axes[2].plot(at, [100.0 * row[2] for row in result["series"]], color=color, linewidth=1.1)
        if words == "clairvoyant":
            axes[0].plot(at, [row[1] for row in result["series"]], color=GREY)
    axes[0].set_ylabel("requests/s")
    axes[1].set_ylabel("replicas")
    axes[1].legend(fontsize=8)
    axes[2].set_ylabel("good, %")
    axes[2].axhline(99.0, color=GREY, linewidth=0.8)
    axes[2].set_xlabel("minutes")
    axes[0].set_title(f"{score.track.name}: {score.track.words}", loc="left", fontsize=10)
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)


def _robust(axis: Any, score: TrackScore) -> None:
    """R99 per variant for sluice and for the best peer."""
    names = list(next(iter(score.robust.values())))
    for k, (law, values) in enumerate(score.robust.items()):
        for place, name in enumerate(names):
            value = values.get(name)
            axis.bar(place + 0.4 * k, value or 0.0, width=0.38, color=BLUE if law == "sluice" else ORANGE,
                     label=law if place == 0 else None)  # fmt: skip
            axis.text(
                place + 0.4 * k,
                (value or 0.0) + 0.02,
                "fails" if value is None else f"{value:.2f}",
                ha="center",
                fontsize=7,
            )
    axis.set_xticks([place + 0.2 for place in range(len(names))], names, rotation=25, ha="right", fontsize=8)
    axis.axhline(1.25, color=GREY, linewidth=0.8)
    axis.axhline(1.5, color=GREY, linewidth=0.8, linestyle="--")
    axis.set_ylabel("R99")
    axis.set_title(f"{score.track.name} under the variants", loc="left", fontsize=10)
    axis.legend(fontsize=8)
