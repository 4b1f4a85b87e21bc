"""`sluice model pull`: fetches and converts a model, so that serving it starts at once."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sluice.commands.model.failures import reported

if TYPE_CHECKING:
    from sluice_engine.pulled import Event

LINE_STEP: Final = 0.1  # of a download, between two lines off a terminal


def pull(
    source: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="smollm2, minilm, hf://org/name@revision or a path to a .gguf."),
    ],
    dtype: Annotated[
        str, typer.Option(help="Weights of a converted GGUF file: auto (bfloat16), bfloat16, float16 or float32.")
    ] = "auto",
) -> None:
    """Fetch a model into the cache and print its folder. Every later start reads it from there."""
    with reported():
        typer.echo(str(pulled_folder(source, dtype)))
        typer.echo(f"Serve it: sluice serve {source}", err=True)


def pulled_folder(source: str, dtype: str = "auto") -> Path:
    """The folder of a model, pulled with progress on stderr if it is not there. Raises SourceError and StartError."""
    from sluice_engine.pulled import pull as fetch_and_convert

    with _shown(source) as on_event:
        return fetch_and_convert(source, dtype, on_event=on_event)


def local_folder(model: str, dtype: str = "auto") -> str:
    """The folder of a name or a GGUF file, pulled or converted if it is not in the cache; else `model` as it is.

    Raises SourceError and StartError.
    """
    from sluice_engine.gguf import find_gguf
    from sluice_engine.pulled import find_pulled, known_models
    from sluice_engine.sources import default_cache

    path = Path(model).expanduser()
    if path.exists():
        return model if find_gguf(path) is None else str(pulled_folder(model, dtype))
    if "/" in model:
        return model
    if model in known_models():
        return str(pulled_folder(model, dtype))
    return str(find_pulled(model, default_cache())[-1].folder)


def local_uri(model: str) -> str:
    """`local_folder` as a file:// URI, for `spec.model.uri` in a file of `sluice up`. Exits where there is no such model."""
    with reported():
        return Path(local_folder(model)).expanduser().absolute().as_uri()


@contextmanager
def _shown(source: str) -> "Iterator[Callable[[Event], None]]":
    """A progress bar on a terminal, else a JSON line per stage and tenth of a download. Both use stderr."""
    if not sys.stderr.isatty():
        yield _Lines(source)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("[bold cyan]{task.description}"), BarColumn(20), DownloadColumn(binary_units=True))
    with Progress(
        *columns, TimeRemainingColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(source, total=None, visible=False)

        def show(event: "Event") -> None:
            if isinstance(event, str):
                bar.update(task, description=f"{event} {source}", total=None, completed=0, visible=True)
            else:
                bar.update(task, completed=event.received_bytes, total=event.total_bytes or None, visible=True)

        yield show


class _Lines:
    """One JSON object per line on stderr."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._next = 0.0

    def __call__(self, event: "Event") -> None:
        if isinstance(event, str):
            self._write({"event": event})
        elif event.fraction >= self._next:
            self._next = event.fraction + LINE_STEP
            self._write(
                {"event": "downloading", "received_bytes": event.received_bytes, "total_bytes": event.total_bytes}
            )

    def _write(self, line: dict[str, object]) -> None:
        typer.echo(json.dumps({"model": self._source, **line}), err=True)
