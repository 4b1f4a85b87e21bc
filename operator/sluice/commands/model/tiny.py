"""`sluice model tiny`: trains a small model for demos, tests and first steps."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sluice import contract

if TYPE_CHECKING:
    from sluice_engine.tiny.train import Progress


def tiny(
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Where to put the model; without it, only the cache is filled.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the training.")] = 0,
) -> None:
    """Train a small model that answers questions about serving LLMs: about a minute, once per machine."""
    if directory is not None and directory.exists() and not directory.is_dir():
        typer.echo(f"{directory} is a file; name a folder for the model.", err=True)
        raise typer.Exit(contract.EXIT_USAGE)
    try:
        from sluice_engine.tiny import NotLearned, Recipe, ensure
    except ModuleNotFoundError as missing:
        typer.echo(f"The engine is not installed ({missing.name} is missing): pip install 'sluice[engine]'.", err=True)
        raise typer.Exit(contract.EXIT_USAGE) from missing
    try:
        with _shown() as on_progress:
            made = ensure(directory, Recipe(seed=seed), on_progress)
    except ModuleNotFoundError as missing:
        typer.echo(f"Training needs {missing.name}, which is not installed: pip install 'sluice[engine]'.", err=True)
        raise typer.Exit(contract.EXIT_USAGE) from missing
    except NotLearned as failure:
        typer.echo(str(failure), err=True)
        raise typer.Exit(contract.EXIT_FAILED) from failure
    except OSError as failure:
        typer.echo(f"Cannot write the model: {failure}. Name another DIR or set XDG_CACHE_HOME.", err=True)
        raise typer.Exit(contract.EXIT_FAILED) from failure
    typer.echo(str(made))


@contextmanager
def _shown() -> "Iterator[Callable[[Progress], None]]":
    """A progress bar on a terminal, else a JSON line every 50 steps. Both use stderr; stdout has the path only."""
    if not sys.stderr.isatty():
        yield _line
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("[bold cyan]training"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("training", total=1.0, loss=float("nan"), visible=False)

        def show(now: "Progress") -> None:
            bar.update(task, completed=now.fraction, loss=now.loss, visible=True)

        yield show


def _line(now: "Progress") -> None:
    if now.step % 50 == 1 or now.fraction >= 1.0:
        line = {
            "event": "training",
            "step": now.step,
            "fraction": round(now.fraction, 3),
            "loss": round(now.loss, 4),
            "seconds": round(now.seconds, 1),
        }
        typer.echo(json.dumps(line), err=True)
