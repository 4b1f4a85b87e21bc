"""The commands that look at a cluster: each reads, none writes."""

import typer

from sluice.commands.cluster.check import check
from sluice.commands.cluster.report import report
from sluice.commands.cluster.status import status
from sluice.commands.cluster.top import top


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("status")(status)
    app.command("check")(check)
    app.command("top")(top)
    app.command("report")(report)
