"""The options `--log-format` and `--log-level` of every command that runs a service."""

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from sluice import contract, logs
from sluice.log_batches import write_together

LogFormat = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        help="auto (text on a terminal, JSON elsewhere), text or json. [auto]",
        metavar="FORMAT",
        envvar=logs.ENV_FORMAT,
        show_envvar=False,
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        help="Lowest level of the log: debug, info, warning or error. [info]",
        metavar="LEVEL",
        envvar=logs.ENV_LEVEL,
        show_envvar=False,
    ),
]


def configure_logs(
    log_format: str | None, log_level: str | None, *, level: str = "info", batched: Sequence[str] = ()
) -> None:
    """Log as chosen, at `level` without a choice, in this process and in those that it starts. Lines of the loggers in
    `batched` may be written a moment later.

    Exits with EXIT_USAGE for an unknown value.
    """
    for name, value in ((logs.ENV_FORMAT, log_format), (logs.ENV_LEVEL, log_level)):
        if value is not None:
            os.environ[name] = value
    try:
        logs.configure(logs.from_environment(level=level))
        write_together(*batched)
    except logs.InvalidLogOption as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(contract.EXIT_USAGE) from error
