"""`sluice simulate` after option parsing: runs the simulations and produces a sentence, a table and a picture."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from sluice_sim.cli.compare import Row, asked_for, compare, comparison, knobs
from sluice_sim.cli.question import BadInput, Case, Question, understood
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.collector import uncollected
from sluice_sim.policies.registry import UnknownLaw
from sluice_sim.results import table
from sluice_sim.results.picture import NoPicture, draw, paths
from sluice_sim.results.run import Run
from sluice_sim.results.summary import Summary, summarise

__all__ = ["BadInput", "Question", "answer"]


def answer(question: Question, as_json: bool = False, console: Console | None = None) -> None:
    """Simulate and print the result. Raises BadInput."""
    console = console or Console()
    try:
        names = asked_for(question.compare) if question.compare else ()
        if question.plot is not None:
            paths(question.plot)
    except (UnknownLaw, NoPicture) as error:
        raise BadInput((str(error),)) from error
    case = understood(question)
    run, speed = _simulated(case, console)
    summary = summarise(run, case.gpus)
    rows = _compared(case, names, console)
    said = table.sentence(summary, case.spec)
    if as_json:
        value = table.as_json(summary, run, said, case.notes) | {"compared": table.compared_json(rows)}
        console.print(json.dumps(value), highlight=False, markup=False, soft_wrap=True)
    else:
        _print(console, case, run, summary, rows)
        console.print(said, highlight=False, markup=False, soft_wrap=True)
    Console(stderr=True).print(speed, highlight=False, soft_wrap=True)
    if question.plot is not None:
        _draw(question.plot, case, run, said)


def _print(console: Console, case: Case, run: Run, summary: Summary, rows: tuple[Row, ...]) -> None:
    console.print(table.table(summary, case.spec))
    for line in (*case.notes, *table.decisions(run)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if rows:
        shown = comparison(rows, case.spec, f"{case.settings.mode} steps")
        console.print(shown, crop=False)
        for line in knobs(rows):
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def _draw(plot: Path, case: Case, run: Run, said: str) -> None:
    try:
        written = draw(run, case.spec, said, plot)
    except NoPicture as error:
        raise BadInput((str(error),)) from error
    for path in written:
        Console(stderr=True).print(f"picture: {path}", highlight=False, markup=False, soft_wrap=True)


def _simulated(case: Case, console: Console) -> tuple[Run, str]:
    """The run, and a sentence about the simulation's speed."""
    began = time.process_time()
    end = max(case.arrivals[-1].at, 1.0)
    with _bar(console, "simulating") as advance, uncollected():
        run = Fleet(case.spec, case.settings).run(case.arrivals, lambda now: advance(now / end))
    seconds = max(time.process_time() - began, 1e-9)
    return run, f"{run.seconds:.0f} s in {seconds:.1f} s of one core: {run.seconds / seconds:.0f} × real time"


def _compared(case: Case, names: tuple[str, ...], console: Console) -> tuple[Row, ...]:
    if not names:
        return ()
    with _bar(console, "comparing") as advance:
        return compare(names, case.spec, case.settings, case.arrivals, case.gpus, advance)


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
