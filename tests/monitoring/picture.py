"""Draws a committed dashboard from what a Prometheus holds, as Grafana would lay it out, without a Grafana."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from tests.monitoring.known import windows
from tests.monitoring.prometheus import Prometheus, Series

Json = dict[str, Any]

WIDTH: Final = 16.0  # inches of 24 columns
ROW: Final = 0.32  # inches of one unit of height
POINTS: Final = 240  # of a panel, at most
MOST_NAMES: Final = 8  # of a panel's legend
_SECONDS: Final = EngFormatter(unit="s", sep=" ")
GREEN, RED, GREY = "#2e8540", "#b3261e", "#666666"


def draw(dashboard: Path, prometheus: Prometheus, start: float, end: float, picture: Path) -> dict[str, int]:
    """Write the picture, and return the number of series of each panel's queries by "panel: legend".

    start, end: seconds since the epoch. Raises AssertionError with Prometheus' error for a query that it refuses.
    """
    made: Json = json.loads(dashboard.read_text())
    panels: Sequence[Json] = made["panels"]
    height = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels) + 2
    figure = Figure(figsize=(WIDTH, height * ROW), facecolor="white")
    figure.text(0.01, 1 - 1.2 / height, made["title"], fontsize=15, weight="bold")
    counts: dict[str, int] = {}
    for panel in panels:
        place = panel["gridPos"]
        left, top = place["x"] / 24, 1 - (place["y"] + 2) / height
        if panel["type"] == "row":
            figure.text(left + 0.01, top - 0.7 / height, panel["title"], fontsize=11, color=GREY)
            continue
        found = [(each, _series(prometheus, each["expr"], start, end)) for each in panel["targets"]]
        counts |= {f"{panel['title']}: {each['legendFormat']}": len(series) for each, series in found}
        named = [(_legend(each["legendFormat"], one.labels), one) for each, series in found for one in series]
        box = (left + 0.03, top - (place["h"] - 0.9) / height, place["w"] / 24 - 0.045, (place["h"] - 2.4) / height)
        _panel(figure.add_axes(box), panel, named, (start, end))
    figure.savefig(picture, dpi=75)
    return counts


def _series(prometheus: Prometheus, expression: str, start: float, end: float) -> list[Series]:
    step = max((end - start) / POINTS, 5.0)
    found = prometheus.query_range(windows(expression, "1m"), start, end, step)
    return [one for one in found if not all(math.isnan(value) for _, value in one.points)]


def _legend(text: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), text)


def _panel(axes: Any, panel: Json, named: Sequence[tuple[str, Series]], span: tuple[float, float]) -> None:
    axes.set_title(panel["title"], fontsize=9, loc="left")
    defaults = panel["fieldConfig"]["defaults"]
    if panel["type"] == "stat":
        axes.set_axis_off()
        value = named[-1][1].points[-1][1] if named else None
        text, color = (
            (_text(defaults["unit"], value), _color(defaults, value)) if value is not None else ("No data", GREY)
        )
        axes.text(0.5, 0.4, text, fontsize=22, ha="center", va="center", color=color, transform=axes.transAxes)
        return
    if not named:
        axes.text(0.5, 0.5, "No data", ha="center", va="center", color=GREY, transform=axes.transAxes)
    if defaults["custom"]["stacking"]["mode"] == "normal":
        _stack(axes, named, span[0])
    else:
        for name, one in named:
            axes.plot(*_minutes(one, span[0]), linewidth=1.2, label=name)
    axes.yaxis.set_major_formatter(lambda value, _: _text(defaults["unit"], value))
    axes.tick_params(labelsize=7)
    axes.set_xlim(0, (span[1] - span[0]) / 60)
    if "min" in defaults:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    handles, names = axes.get_legend_handles_labels()
    if names:
        axes.legend(handles[:MOST_NAMES], names[:MOST_NAMES], fontsize=6, loc="upper left", framealpha=0.7)


def _minutes(one: Series, start: float) -> tuple[list[float], list[float]]:
    return [(time - start) / 60 for time, _ in one.points], [value for _, value in one.points]


def _stack(axes: Any, named: Sequence[tuple[str, Series]], start: float) -> None:
    """Areas over the times at which any series has a value; a missing value is nothing."""
    times = sorted({time for _, one in named for time, _ in one.points})
    values = [[dict(one.points).get(time, 0.0) for time in times] for _, one in named]
    if times:
        minutes = [(time - start) / 60 for time in times]
        axes.stackplot(minutes, values, labels=[name for name, _ in named], alpha=0.6)


def _color(defaults: Json, value: float) -> str:
    limit = defaults["thresholds"]["steps"][-1]["value"] if "thresholds" in defaults else None
    return GREY if limit is None else GREEN if value >= limit else RED


def _text(unit: str, value: float) -> str:
    """A value as Grafana writes it, nearly: three digits and the unit."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        return _SECONDS(value)
    return f"{value:.3g}/s" if unit == "reqps" else f"{value:.4g}"
