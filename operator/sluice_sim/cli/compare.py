"""Comparisons under the same trace, hardware and random events: several laws (`--compare`), several specs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.scenario import Settings
from sluice_sim.policies.policy import Law
from sluice_sim.policies.registry import LAWS, named
from sluice_sim.results.summary import Summary, summarise
from sluice_sim.traces import Arrival

WIDTH: Final = 80  # columns of a default terminal
_NAME_WIDTH: Final = max(len(name) for name in LAWS) + 2  # a law's name with its indentation


@dataclass(frozen=True, slots=True)
class Row:
    """One law at its default setting, and the summary of its run."""

    law: Law
    summary: Summary


def law_names(text: str) -> tuple[str, ...]:
    """The laws in a list such as `hpa,kpa,llm-d`, preceded by `sluice`. Raises UnknownLaw."""
    return named(["sluice", *(name.strip() for name in text.split(",") if name.strip())])


def compare(
    names: Sequence[str],
    spec: LLMDeploymentSpec,
    settings: Settings,
    arrivals: Sequence[Arrival],
    gpus: int = 1,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[Row, ...]:
    """Run each law at its default setting.

    spec.scaling.mode is overridden by Auto. At least one replica stays, since no gateway could wake the model from
    zero. `gpus` counts the GPUs of one replica; `progress` is called with the completed share, 0..1."""
    changes = {"mode": "Auto", "min_replicas": max(1, spec.scaling.min_replicas)}
    acting = spec.model_copy(update={"scaling": spec.scaling.model_copy(update=changes)})
    end = max(arrivals[-1].at, 1.0)
    rows = []
    for place, name in enumerate(names):
        law = LAWS[name].default()

        def advance(now: float, before: int = place) -> None:
            progress((before + min(now / end, 1.0)) / len(names))

        rows.append(Row(law, summarise(Fleet(acting, settings, law).run(arrivals, advance), gpus)))
    return tuple(rows)


def comparison_table(rows: Sequence[Row], spec: LLMDeploymentSpec, caption: str) -> Table:
    """A table with one line per law."""
    title = f"Laws at their defaults, {spec.scaling.min_replicas} – {spec.scaling.max_replicas} replicas"
    shown = _headings("law", title, caption)
    for row in rows:
        shown.add_row(row.law.name, *_figures(row.summary))
    return shown


def specs_table(groups: Sequence[tuple[str, Sequence[Row]]], caption: str) -> Table:
    """A table with one line per spec; with several laws, a line per law under the name of its spec."""
    laws = max(len(rows) for _, rows in groups) > 1
    shown = _headings("spec" if not laws else "spec and law", "Specs under the same load", caption)
    for name, rows in groups:
        if not laws:
            shown.add_row(Text(name, overflow="fold"), *_figures(rows[0].summary))
            continue
        shown.add_row(Text(name, overflow="fold"))
        for row in rows:
            shown.add_row(f"  {row.law.name}", *_figures(row.summary))
    return shown


def _headings(first: str, title: str, caption: str) -> Table:
    """An empty table, WIDTH columns on every terminal: a folded line is better than a cut figure."""
    shown = Table(title=title, caption=caption, title_justify="left", caption_justify="left", width=WIDTH)
    shown.box, shown.show_edge, shown.pad_edge, shown.collapse_padding = SIMPLE_HEAD, False, False, True
    shown.add_column(first, overflow="fold", min_width=_NAME_WIDTH)
    for heading in (
        "SLO\nmet",
        "worst\n5 min",
        "replicas\nmean",
        "most",
        "GPU-\nhours",
        "moves\nper h",
        "reversals\nper h",
    ):
        shown.add_column(heading, justify="right", no_wrap=True)
    return shown


def _figures(summary: Summary) -> Iterator[str]:
    yield f"{summary.attainment:.2%}"
    yield f"{summary.attainment_worst:.2%}"
    yield f"{summary.replicas_mean:.2f}"
    yield f"{summary.replicas_max}"
    yield f"{summary.gpu_hours:.3f}"
    yield f"{summary.actions_per_hour:.1f}"
    yield f"{summary.flips_per_hour:.1f}"


def knob_lines(rows: Sequence[Row]) -> Iterator[str]:
    """One line per law: the name and the value of its knob, which was not tuned."""
    width = max(len(row.law.name) for row in rows)
    for law in (row.law for row in rows):
        yield f"  {law.name:{width}}  {law.knob.name} {law.setting:g} {law.knob.unit}".rstrip()
