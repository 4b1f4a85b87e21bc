"""Shows the results of `sluice simulate`: warnings, tables, notes, sentences, JSON and pictures."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from sluice.sentences import wrapped
from sluice_sim.cli.compare import Row, comparison_table, knob_lines, specs_table
from sluice_sim.cli.options import Case
from sluice_sim.policies.sluice import OURS
from sluice_sim.results import table
from sluice_sim.results.picture import draw
from sluice_sim.results.run import Run
from sluice_sim.results.summary import Summary


@dataclass(frozen=True, slots=True)
class Result:
    """One case, its run, and the rows of other laws under it (empty without --compare)."""

    case: Case
    run: Run
    summary: Summary
    rows: tuple[Row, ...] = ()

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return table.sentence(self.summary, self.case.spec)


def print_warnings(console: Console, cases: Sequence[Case]) -> None:
    """Print what makes a result useless, before the simulation and every figure."""
    for line in _lines(cases, [[] if case.warning is None else [case.warning] for case in cases]):
        print_line(console, line, style="bold yellow")


def print_results(console: Console, results: Sequence[Result]) -> None:
    """Print the figures, the notes and the answer."""
    if len(results) == 1:
        _print_one(console, results[0])
    else:
        _print_several(console, results)


def print_json(console: Console, results: Sequence[Result]) -> None:
    """Print one JSON object: of the only spec, or `specs` by name."""
    found = {result.case.name: _as_json(result) for result in results}
    value = found.popitem()[1] if len(results) == 1 else {"specs": found}
    console.print(json.dumps(value), highlight=False, markup=False, soft_wrap=True)


def draw_all(plot: Path, results: Sequence[Result], console: Console) -> None:
    """Draw each run; the files of several specs have their names. Raises NoPicture."""
    for result in results:
        spec = result.case.name.replace("/", "_").removesuffix(".yaml")
        target = plot if len(results) == 1 else plot.with_name(f"{plot.stem}-{spec}{plot.suffix}")
        for path in draw(result.run, result.case.spec, result.sentence, target):
            print_line(console, f"picture: {path}")


def _print_one(console: Console, result: Result) -> None:
    case = result.case
    console.print(table.table(result.summary, case.spec))
    for line in (*case.notes, *table.decisions(result.run)):
        print_line(console, line)
    if result.rows:
        console.print(comparison_table(result.rows, case.spec, _caption(case)), crop=False)
        for line in knob_lines(result.rows):
            print_line(console, line)
    if (lost := table.misses(result.summary, result.case.too_long)) is not None:
        print_line(console, lost)
    print_line(console, result.sentence)


def _print_several(console: Console, results: Sequence[Result]) -> None:
    """One table for all specs. The decisions of a spec are printed when it is simulated alone."""
    groups = [(one.case.name, one.rows or (Row(OURS, one.summary),)) for one in results]
    console.print(specs_table(groups, _caption(results[0].case)), crop=False)
    cases = [result.case for result in results]
    for line in _lines(cases, [case.notes for case in cases]):
        print_line(console, line)
    if results[0].rows:
        for line in knob_lines(results[0].rows):
            print_line(console, line)
    for result in results:
        if (lost := table.misses(result.summary, result.case.too_long)) is not None:
            print_line(console, f"{result.case.name}: {lost}")
        print_line(console, f"{result.case.name}: {result.sentence}")


def _lines(cases: Sequence[Case], notes: Sequence[Sequence[str]]) -> Iterator[str]:
    """The notes of all cases: those that all have once, each other one after the name of its spec."""
    common = [note for note in notes[0] if all(note in others for others in notes)]
    yield from common
    for case, own in zip(cases, notes, strict=True):
        for note in own:
            if note not in common:
                yield f"{case.name}: {note}"


def _as_json(result: Result) -> dict[str, Any]:
    case = result.case
    notes = case.notes if case.warning is None else (case.warning, *case.notes)
    value = table.as_json(result.summary, result.run, result.sentence, notes)
    return value | {"compared": table.compared_json(result.rows)}


def _caption(case: Case) -> str:
    return f"{case.settings.mode} steps"


def print_line(console: Console, line: str, style: str | None = None) -> None:
    """Print a sentence: on a terminal wrapped at words, elsewhere as one line."""
    shown = wrapped(line, console.width) if console.is_terminal else line
    console.print(shown, style=style, highlight=False, markup=False, soft_wrap=True)
