"""`sluice model`: the models on this machine, and where others come from."""

import typer

from sluice.commands.model.listing import info, list_models
from sluice.commands.model.pull import pull
from sluice.commands.model.remove import rm
from sluice.commands.model.tiny import tiny


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    model = typer.Typer(help="Models on this machine.", no_args_is_help=True)
    model.command("list")(list_models)
    model.command("pull")(pull)
    model.command("info")(info)
    model.command("rm")(rm)
    model.command("tiny")(tiny)
    app.add_typer(model, name="model")
