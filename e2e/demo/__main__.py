"""`make demo`: runs the whole control loop on this machine. The exit code is 0 only if every check passes."""

import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from e2e.demo import real_model
from e2e.demo.fleet import DemoFailed, Fleet
from e2e.demo.story import Record, Story, write_resource
from e2e.demo.summary import closing_checks, print_failure, print_summary
from sluice_engine.tiny import ensure


def _tiny_model(console: Console) -> Path:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("tiny model", total=1.0)
        model = ensure(on_progress=lambda now: progress.update(task, completed=now.fraction))
        progress.update(task, completed=1.0)
    return model


async def _play(console: Console, folder: Path, model: Path) -> int:
    file, logs, record = write_resource(folder, model), folder / "logs", Record()
    console.rule("What is asked for")
    console.print(file.read_text(), markup=False)
    fleet, told = Fleet(file, logs), ""
    async with fleet:
        try:
            await Story(fleet, console, record).play()
        except DemoFailed as failure:
            told = str(failure)
        code = await fleet.stop()
    if record.fetch_fault is not None:
        record.checks.extend(await real_model.answer(console, record.fetch_fault))
    verdict = [*record.checks, *closing_checks(record, fleet, code)]
    print_summary(console, record, fleet, verdict)
    if told or not all(check.passed for check in verdict):
        print_failure(console, fleet, logs)
        console.print(f"[red]The demo failed[/red]{': ' + told if told else ''}")
        return 1
    console.print("[green]All of it happened.[/green]")
    return 0


def main() -> int:
    """Run the demo and return the exit code."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    console = Console(width=None if sys.stdout.isatty() else 140, soft_wrap=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sluice-demo-") as folder:
        model = _tiny_model(console)
        code = asyncio.run(_play(console, Path(folder), model))
    console.print(f"{time.monotonic() - start:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
