"""`sluice simulate` after option parsing: runs the simulations and produces a sentence, a table and a picture."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from sluice_sim.cli.compare import Row, compare, comparison_table, knob_lines, law_names
from sluice_sim.cli.options import BadInput, SimulateOptions, SimulationInput, read_input
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.collector import uncollected
from sluice_sim.policies.registry import UnknownLaw
from sluice_sim.results import table
from sluice_sim.results.picture import NoPicture, draw, paths
from sluice_sim.results.run import Run
from sluice_sim.results.summary import Summary, summarise

__all__ = ["BadInput", "SimulateOptions", "run_simulate"]


def run_simulate(options: SimulateOptions, as_json: bool = False, console: Console | None = None) -> None:
    """Simulate and print the result. Raises BadInput."""
    console = console or Console()
    try:
        names = law_names(options.compare) if options.compare else ()
        if options.plot is not None:
            paths(options.plot)
    except (UnknownLaw, NoPicture) as error:
        raise BadInput((str(error),)) from error
    simulation = read_input(options)
    run, speed = _simulate(simulation, console)
    summary = summarise(run, simulation.gpus)
    rows = _compare(simulation, names, console)
    sentence = table.sentence(summary, simulation.spec)
    if as_json:
        value = table.as_json(summary, run, sentence, simulation.notes) | {"compared": table.compared_json(rows)}
        console.print(json.dumps(value), highlight=False, markup=False, soft_wrap=True)
    else:
        _print(console, simulation, run, summary, rows)
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    Console(stderr=True).print(speed, highlight=False, soft_wrap=True)
    if options.plot is not None:
        _draw(options.plot, simulation, run, sentence)


def _print(console: Console, simulation: SimulationInput, run: Run, summary: Summary, rows: tuple[Row, ...]) -> None:
    console.print(table.table(summary, simulation.spec))
    for line in (*simulation.notes, *table.decisions(run)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if rows:
        shown = comparison_table(rows, simulation.spec, f"{simulation.settings.mode} steps")
        console.print(shown, crop=False)
        for line in knob_lines(rows):
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def _draw(plot: Path, simulation: SimulationInput, run: Run, sentence: str) -> None:
    try:
        written = draw(run, simulation.spec, sentence, plot)
    except NoPicture as error:
        raise BadInput((str(error),)) from error
    for path in written:
        Console(stderr=True).print(f"picture: {path}", highlight=False, markup=False, soft_wrap=True)


def _simulate(simulation: SimulationInput, console: Console) -> tuple[Run, str]:
    """The run, and a sentence about the simulation's speed."""
    began = time.process_time()
    end = max(simulation.arrivals[-1].at, 1.0)
    with _bar(console, "simulating") as advance, uncollected():
        run = Fleet(simulation.spec, simulation.settings).run(simulation.arrivals, lambda now: advance(now / end))
    seconds = max(time.process_time() - began, 1e-9)
    return run, f"{run.seconds:.0f} s in {seconds:.1f} s of one core: {run.seconds / seconds:.0f} × real time"


def _compare(simulation: SimulationInput, names: tuple[str, ...], console: Console) -> tuple[Row, ...]:
    if not names:
        return ()
    with _bar(console, "comparing") as advance:
        return compare(names, simulation.spec, simulation.settings, simulation.arrivals, simulation.gpus, advance)


@contextmanager
def _bar(console: Console, what: str) -> Iterator[Callable[[float], None]]:
    """A progress bar on a terminal, no output elsewhere. Yields a callback that takes the completed share, 0..1."""
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda share: progress.update(task, completed=min(share, 1.0))
