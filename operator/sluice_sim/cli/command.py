"""`sluice simulate` after option parsing: runs the simulations and shows their results."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from sluice_sim.cli.compare import Row, compare, law_names
from sluice_sim.cli.options import BadInput, Case, SimulateOptions, SimulationInput, read_input
from sluice_sim.cli.show import Result, draw_all, print_json, print_line, print_results, print_warnings
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.collector import uncollected
from sluice_sim.policies.registry import UnknownLaw
from sluice_sim.results.picture import NoPicture, paths
from sluice_sim.results.summary import summarise
from sluice_sim.traces import Arrival

__all__ = ["BadInput", "SimulateOptions", "run_simulate"]


def run_simulate(options: SimulateOptions, as_json: bool = False, console: Console | None = None) -> None:
    """Simulate and print the result. Raises BadInput."""
    console = console or Console()
    errors = Console(stderr=True)
    try:
        names = law_names(options.compare) if options.compare else ()
        if options.plot is not None:
            paths(options.plot)
    except (UnknownLaw, NoPicture) as error:
        raise BadInput((str(error),)) from error
    simulation = read_input(options)
    print_warnings(errors if as_json else console, simulation.cases)
    results, speed = _simulate(simulation, names, console)
    if as_json:
        print_json(console, results)
    else:
        print_results(console, results)
    print_line(errors, speed)
    if options.plot is not None:
        try:
            draw_all(options.plot, results, errors)
        except NoPicture as error:
            raise BadInput((str(error),)) from error


def _simulate(simulation: SimulationInput, names: Sequence[str], console: Console) -> tuple[tuple[Result, ...], str]:
    """The result of each case, and a sentence about the simulations' speed."""
    began, results = time.process_time(), list[Result]()
    end, count = max(simulation.arrivals[-1].at, 1.0), len(simulation.cases)
    with _bar(console, "simulating") as advance, uncollected():
        for place, case in enumerate(simulation.cases):
            run = Fleet(case.spec, case.settings).run(simulation.arrivals, _part(advance, place, count, end))
            results.append(Result(case, run, summarise(run, case.gpus)))
    seconds = max(time.process_time() - began, 1e-9)
    simulated = sum(result.run.seconds for result in results)
    speed = f"{simulated:.0f} s in {seconds:.1f} s of one core: {simulated / seconds:.0f} × real time"
    if not names:
        return tuple(results), speed
    with _bar(console, "comparing") as advance:
        compared = tuple(
            replace(one, rows=_compare(one.case, simulation.arrivals, names, _part(advance, place, count)))
            for place, one in enumerate(results)
        )
    return compared, speed


def _compare(
    case: Case, arrivals: Sequence[Arrival], names: Sequence[str], advance: Callable[[float], None]
) -> tuple[Row, ...]:
    return compare(names, case.spec, case.settings, arrivals, case.gpus, advance)


def _part(advance: Callable[[float], None], place: int, count: int, end: float = 1.0) -> Callable[[float], None]:
    """A callback for the progress, 0 to `end`, of part `place` of `count` equal parts."""
    return lambda now: advance((place + min(now / end, 1.0)) / count)


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
