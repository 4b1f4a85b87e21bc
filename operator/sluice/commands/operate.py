"""`sluice operator`: the operator's process, in a container or on a laptop against KUBECONFIG."""

from dataclasses import replace
from typing import Annotated

import typer

from sluice import contract
from sluice.commands.log_options import LogFormat, LogLevel, configure_logs


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("operator")(operate)


def operate(
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Serve /debug/profile?seconds=10 beside /metrics: the time by call stack, in the folded format of flame "
            "graphs.",
            envvar="SLUICE_PROFILE",
            show_envvar=False,
        ),
    ] = False,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
) -> None:
    """Run the operator for LLMDeployments until it receives a signal.

    Reads SLUICE_ENGINE_IMAGE, SLUICE_NAMESPACE (separated by commas; empty: all), SLUICE_INTERVAL_SECONDS, SLUICE_HEALTH_PORT,
    SLUICE_MAX_UPGRADES, SLUICE_METRICS_RESOURCES, SLUICE_KEY_SECRET, POD_NAMESPACE and POD_NAME. Exits 0 on a signal, 1 when
    the Lease is lost or watching stops working.
    """
    try:
        from sluice_operator.runtime.process import main
        from sluice_operator.settings import InvalidSettings, from_environment
    except ModuleNotFoundError as error:
        typer.echo(f"the operator needs {error.name}: pip install 'sluice[operator]'", err=True)
        raise typer.Exit(contract.EXIT_USAGE) from error
    try:
        settings = replace(from_environment(), has_profiler=profile)
    except InvalidSettings as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(contract.EXIT_USAGE) from error
    configure_logs(log_format, log_level)
    raise typer.Exit(main(settings))
