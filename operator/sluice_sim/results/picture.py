"""The picture of a run: demand, replicas, attainment, KV cache and limits over a common time axis. Needs matplotlib."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.results.run import Run
from sluice_sim.results.series import band, over_time, piece_seconds

ENDINGS: Final = (".png", ".svg")
BLUE, ORANGE, GREEN, GREY = "#1f5fa8", "#d9730d", "#2e8540", "#888888"


class NoPicture(Exception):
    """The picture cannot be made. The message gives the reason and a remedy."""


def paths(plot: Path) -> tuple[Path, ...]:
    """The files to write: the path itself, or one per ending in ENDINGS if the path has none.

    Called before a long run as well, so that an unusable path fails early. Raises NoPicture."""
    if plot.suffix and plot.suffix not in ENDINGS:
        raise NoPicture(f"--plot: {plot} must end in .png or .svg, or have no ending for both")
    if not plot.parent.is_dir():
        raise NoPicture(f"--plot: there is no folder {plot.parent}: create it, or choose another path")
    _figure()
    return (plot,) if plot.suffix else tuple(plot.with_suffix(ending) for ending in ENDINGS)


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoPicture("--plot needs matplotlib: pip install matplotlib") from error
    return Figure(figsize=(11, 10), layout="constrained")


def draw(run: Run, spec: LLMDeploymentSpec, title: str, plot: Path) -> tuple[Path, ...]:
    """Write the picture and return the written files. Raises NoPicture."""
    targets, figure = paths(plot), _figure()
    axes = figure.subplots(5, 1, sharex=True, height_ratios=(2, 2, 1.6, 1.4, 1.4))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, wrap=True)
    scale, unit = _unit(run.seconds)
    _demand(axes[0], run, scale)
    _replicas(axes[1], run, spec, scale)
    _attainment(axes[2], run, spec, scale)
    _memory(axes[3], run, spec, scale)
    _limits(axes[4], run, scale)
    axes[4].set_xlabel(unit)
    axes[4].set_xlim(0, run.seconds / scale)
    for one in axes:
        one.grid(alpha=0.25)
        one.spines[["top", "right"]].set_visible(False)
        one.yaxis.set_label_coords(-0.06, 0.5)
    try:
        for target in targets:
            _save(figure, target)
    except OSError as error:
        raise NoPicture(f"--plot: {error.filename or plot} cannot be written: {error.strerror}") from error
    return targets


def _save(figure: Any, target: Path) -> None:
    """Save one file. An SVG keeps its text as text (searchable, accessible), and the same run gives the same file."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "sluice"}):
        figure.savefig(target, dpi=120, metadata={"Date": None} if target.suffix == ".svg" else None)


def _demand(axis: Any, run: Run, scale: float) -> None:
    seen = over_time(run)
    at = [sample / scale for sample in seen.at]
    axis.step(at, seen.offered, where="mid", color=BLUE, label="offered")
    if any(seen.refused):
        axis.fill_between(at, seen.refused, step="mid", color=ORANGE, alpha=0.6, label="rejected")
    axis.set_ylabel("requests/s")
    axis.set_ylim(bottom=0)
    _legend(axis)


def _replicas(axis: Any, run: Run, spec: LLMDeploymentSpec, scale: float) -> None:
    at = [sample.at / scale for sample in run.fleet_samples]
    axis.step([t / scale for t, _ in run.desired], [count for _, count in run.desired], where="post", color=GREY,
              linestyle="--", label="desired")  # fmt: skip
    axis.step(at, [sample.pods for sample in run.fleet_samples], where="post", color=ORANGE, label="existing")
    axis.step(at, [sample.ready for sample in run.fleet_samples], where="post", color=BLUE, label="ready")
    most = max(sample.pods for sample in run.fleet_samples)
    if most >= spec.scaling.max_replicas:
        axis.axhline(spec.scaling.max_replicas, color=GREY, linewidth=0.8, label="maxReplicas")
    axis.set_ylabel("replicas")
    axis.set_ylim(0, most + 1)
    axis.yaxis.get_major_locator().set_params(integer=True)
    _legend(axis)


def _attainment(axis: Any, run: Run, spec: LLMDeploymentSpec, scale: float) -> None:
    """One level per interval of arrival time, and nothing where no request arrived."""
    seen = over_time(run)
    shares = [math.nan if share is None else 100.0 * share for share in seen.attainment]
    edges = [place * seen.seconds / scale for place in range(len(shares) + 1)]
    axis.stairs(shares, edges, baseline=None, color=GREEN, linewidth=2, label=f"good, per {_length(seen.seconds)}")
    axis.axhline(float(spec.slo.attainment_percent), color=GREY, linewidth=0.8, label="target")
    axis.set_ylabel("SLO met, %")
    low = min((share for share in shares if not math.isnan(share)), default=100.0)
    axis.set_ylim(max(0.0, min(low - 2.0, 90.0)), 101.0)
    _legend(axis)


def _memory(axis: Any, run: Run, spec: LLMDeploymentSpec, scale: float) -> None:
    _band(axis, run, [(sample.at, 100.0 * sample.kv_share) for sample in run.fleet_samples], BLUE, "held", scale)
    axis.axhline(spec.scaling.target_kv_occupancy_percent, color=GREY, linewidth=0.8, label="target")
    axis.set_ylabel("KV cache, %")
    axis.set_ylim(0, 101)
    _legend(axis)


def _limits(axis: Any, run: Run, scale: float) -> None:
    """Per replica: the concurrency limit in force, and the running and waiting requests."""
    _band(axis, run, [(at, float(limit)) for at, limit in run.limits], GREY, "limit (median)", scale)
    for name, color in (("running", BLUE), ("waiting", ORANGE)):
        seen = [(sample.at, getattr(sample, name) / max(1, sample.ready)) for sample in run.fleet_samples]
        _band(axis, run, seen, color, name, scale)
    axis.set_ylabel("per replica")
    axis.set_ylim(bottom=0)
    _legend(axis)


def _band(axis: Any, run: Run, values: Sequence[tuple[float, float]], color: str, label: str, scale: float) -> None:
    """The mean as a line; minimum to maximum as a shaded band if an interval holds several samples."""
    seen = band(values, piece_seconds(run))
    at = [one / scale for one in seen.at]
    axis.plot(at, seen.mean, color=color, label=label)
    if seen.low != seen.high:
        axis.fill_between(at, seen.low, seen.high, color=color, alpha=0.25, linewidth=0)


def _legend(axis: Any) -> None:
    """Place the legend beside the axes, where it covers no data."""
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)


def _unit(seconds: float) -> tuple[float, str]:
    if seconds > 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if seconds > 300 else (1.0, "seconds")


def _length(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
