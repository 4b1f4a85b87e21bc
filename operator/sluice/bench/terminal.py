"""Runs a load from the command line: a progress bar, the record of each request, and Ctrl-C."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sluice.bench.load import Load
from sluice.bench.report import Report
from sluice.bench.result import Result
from sluice.bench.run import run
from sluice.bench.show import screen


def run_shown(load: Load, record: Path | None) -> tuple[Report, bool]:
    """The report of a load, and whether Ctrl-C ended it. `record` gets a line per request.

    Raises BenchError, and OSError where `record` cannot be written.
    """
    with contextlib.ExitStack() as stack:
        advance = stack.enter_context(_progress(load))
        file = stack.enter_context(record.open("w")) if record is not None else None

        def on_result(result: Result) -> None:
            advance(result)
            if file is not None:
                file.write(json.dumps(result.record()) + "\n")

        return asyncio.run(_until_interrupt(load, on_result))


def show(report: Report) -> None:
    """Print the report: for a reader on a terminal, one JSON line otherwise."""
    if sys.stdout.isatty():
        Console(highlight=False).print(screen(report))
    else:
        sys.stdout.write(json.dumps(report.to_dict()) + "\n")


async def _until_interrupt(load: Load, on_result: Callable[[Result], None]) -> tuple[Report, bool]:
    interrupt = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt.set)
    try:
        return await run(load, on_result, interrupt=interrupt), interrupt.is_set()
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@contextlib.contextmanager
def _progress(load: Load) -> Iterator[Callable[[Result], None]]:
    """A progress bar on a terminal that is gone at the end, nothing otherwise."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (
        TextColumn("[bold cyan]requests"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("requests", total=load.requests, failed=0)
        failed = 0

        def advance(result: Result) -> None:
            nonlocal failed
            failed += result.failure is not None
            bar.update(task, advance=1, failed=failed)

        yield advance
