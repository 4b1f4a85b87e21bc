"""The commands that look at a cluster: each reads, none writes."""

import typer

from sluice.commands.cluster.check import check
from sluice.commands.cluster.status import status


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("status")(status)
    app.command("check")(check)
