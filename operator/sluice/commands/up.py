"""`sluice up`: the whole control loop on this machine, without Kubernetes."""

from pathlib import Path
from typing import Annotated

import typer

from sluice import contract
from sluice.commands.log_options import LogFormat, LogLevel, configure_logs


def register(app: typer.Typer) -> None:
    """Add the command to the app."""

    @app.command(name="up")
    def up_command(
        file: Annotated[Path, typer.Argument(help="YAML with one LLMDeployment, as for kubectl apply.")],
        port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the gateway; 0 takes a free one.")] = 8080,
        interval: Annotated[float, typer.Option(min=0.1, max=300, help="Seconds between two passes.")] = 1.0,
        state_dir: Annotated[
            Path | None, typer.Option(help="Keep the replicas' logs in this folder. [default: one that is removed]")
        ] = None,
        api_keys_file: Annotated[
            Path | None,
            typer.Option(
                help="YAML list of API keys, reloaded on change; see `sluice key new`. [default: no key needed]"
            ),
        ] = None,
        log_format: LogFormat = None,
        log_level: LogLevel = None,
    ) -> None:
        """Run an LLMDeployment as processes on this machine: scaled, with admission control, behind one URL.

        Shows a live table on a terminal, log lines otherwise or with --log-format. Ctrl-C drains the replicas and
        leaves no process. Exit codes: 0 stopped, 2 invalid file, port in use, or no replica can start as configured.
        """
        configure_logs(log_format, log_level, level="warning")  # this command shows its events itself
        raise typer.Exit(_run(file, port, interval, state_dir, api_keys_file))


def _run(file: Path, port: int, interval: float, state_dir: Path | None, api_keys: Path | None) -> int:
    import asyncio
    import os
    import sys
    from contextlib import ExitStack
    from tempfile import TemporaryDirectory

    from rich.console import Console
    from rich.text import Text

    from sluice import logs
    from sluice.commands.model.pull import local_uri
    from sluice.up.fault import CannotServe
    from sluice.up.file import read_local_resource
    from sluice.up.loop import UpOptions, up
    from sluice.up.show import LiveTable, LogLines, Show
    from sluice_gateway.keys.gatekeeper import KeysInvalid
    from sluice_gateway.server import PortTaken
    from sluice_operator.api.yaml_file import BadFile

    try:
        local = read_local_resource(file, api_keys, local_uri)
    except BadFile as error:
        for fault in error.faults:
            typer.echo(fault, err=True)
        return contract.EXIT_USAGE
    console = Console()
    with ExitStack() as stack:
        if state_dir is None:
            state_dir = Path(stack.enter_context(TemporaryDirectory(prefix="sluice-up-")))
        else:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        chosen = logs.from_environment().format
        lines = logs.TextLines(colour=logs.has_colour(sys.stdout)) if chosen == "text" else logs.JsonLines()
        live = console.is_terminal and chosen == "auto"
        show: Show = LiveTable(console) if live else LogLines(typer.echo, lines)
        stack.callback(show.close)
        try:
            asyncio.run(up(local, UpOptions(port, interval, state_dir, api_keys and api_keys.resolve()), show))
        except KeysInvalid as error:
            typer.echo(str(error), err=True)
            return contract.EXIT_USAGE
        except PortTaken as error:
            typer.echo(f"{error}: choose another by --port", err=True)
            return contract.EXIT_USAGE
        except CannotServe as error:
            show.close()
            errors = Console(stderr=True)
            errors.print(Text(str(error)), soft_wrap=not errors.is_terminal)  # a terminal wraps at words
            return contract.EXIT_USAGE
        if show.gone:  # stdout is a closed pipe, as in `sluice up | head`: avoids Python's second error message at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return contract.EXIT_OK
