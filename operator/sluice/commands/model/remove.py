"""`sluice model rm`: removes pulled models that no engine uses."""

import sys
from typing import Annotated

import typer

from sluice import contract
from sluice.commands.model.failures import reported
from sluice.commands.model.words import size_words


def rm(
    model: Annotated[str, typer.Argument(help="A pulled model: its name, URI, URI@revision or folder.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a pulled model from the cache. A model that is being served on this machine stays."""
    with reported():
        from sluice_engine.pulled import find_pulled, is_held
        from sluice_engine.sources import default_cache, remove

        for found in find_pulled(model, default_cache()):
            if is_held(found.folder):
                typer.echo(f"{found.uri} is in use: an engine serves {found.folder}. Stop it first.", err=True)
                raise typer.Exit(contract.EXIT_FAILED)
            if not yes and not sys.stdin.isatty():
                typer.echo(f"Removing {found.uri} asks first; without a terminal give --yes.", err=True)
                raise typer.Exit(contract.EXIT_USAGE)
            what = f"{found.uri} ({found.revision[:12]}, {size_words(found.size)})"
            if yes or typer.confirm(f"Remove {what}?"):
                remove(found)
                typer.echo(f"Removed {what}.")
