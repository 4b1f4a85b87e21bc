"""Errors of `sluice model` as one sentence on stderr and an exit code."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from sluice import contract


@contextmanager
def reported() -> Iterator[None]:
    """Ends the command with a sentence where the engine extra is missing or a model cannot be found, fetched or read."""
    try:
        from sluice_engine.errors import StartError
        from sluice_engine.sources import SourceError
    except ModuleNotFoundError as missing:
        typer.echo(f"The engine is not installed ({missing.name} is missing): pip install 'sluice[engine]'.", err=True)
        raise typer.Exit(contract.EXIT_USAGE) from missing
    try:
        yield
    except (SourceError, StartError) as failure:
        typer.echo(str(failure), err=True)
        wrong_name = failure.reason in (contract.REASON_MODEL_NOT_FOUND, contract.REASON_INVALID_OPTION)
        raise typer.Exit(contract.EXIT_USAGE if wrong_name else contract.EXIT_FAILED) from failure
    except KeyboardInterrupt as ended:
        typer.echo("Interrupted; the next call continues.", err=True)
        raise typer.Exit(contract.EXIT_INTERRUPTED) from ended
