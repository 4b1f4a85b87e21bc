"""`sluice simulate --compare`: several control laws under the same trace, hardware and random events, side by side."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.scenario import Settings
from sluice_sim.policies.policy import Law
from sluice_sim.policies.registry import LAWS, named
from sluice_sim.results.summary import Summary, summarise
from sluice_sim.traces import Arrival

WIDTH: Final = 80  # columns of a default terminal


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
    """A table with one line per law, WIDTH columns on every terminal: a folded line is better than a cut figure."""
    title = f"Laws at their defaults, {spec.scaling.min_replicas} – {spec.scaling.max_replicas} replicas"
    shown = Table(title=title, caption=caption, title_justify="left", caption_justify="left", width=WIDTH)
    shown.box, shown.show_edge, shown.pad_edge, shown.collapse_padding = SIMPLE_HEAD, False, False, True
    shown.add_column("law", no_wrap=True)
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
    for row in rows:
        summary, law = row.summary, row.law
        shown.add_row(
            law.name,
            f"{summary.attainment:.2%}",
            f"{summary.attainment_worst:.2%}",
            f"{summary.replicas_mean:.2f}",
            f"{summary.replicas_max}",
            f"{summary.gpu_hours:.3f}",
            f"{summary.actions_per_hour:.1f}",
            f"{summary.flips_per_hour:.1f}",
        )
    return shown


def knob_lines(rows: Sequence[Row]) -> Iterator[str]:
    """One line per law: the name and the value of its knob, which was not tuned."""
    width = max(len(row.law.name) for row in rows)
    for law in (row.law for row in rows):
        yield f"  {law.name:{width}}  {law.knob.name} {law.setting:g} {law.knob.unit}".rstrip()
