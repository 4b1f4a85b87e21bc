"""`sluice`: one subcommand per module of `commands/`.

A command module imports nothing heavy at module level, so that `sluice --help` is fast and each image carries only the
packages that it needs. Exit codes: 0 done, 1 failed, 2 bad input (one sentence per fault on stderr), 3 the engine died,
78 the engine can never serve as configured.
"""

import errno
import importlib
import io
import sys
from typing import Annotated, Final

import typer

from sluice import __version__

app = typer.Typer(
    name="sluice",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sluice {__version__}")
        raise typer.Exit


@app.callback()
def sluice(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Serve LLMs on Kubernetes, or on this machine."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a locale without a character of a table must not end a command


COMMANDS: Final = (
    "serve", "up", "chat", "bench", "simulate", "operate", "gateway", "cluster", "explain", "model", "key", "crds",
)  # fmt: skip

for _name in COMMANDS:
    importlib.import_module(f"sluice.commands.{_name}").register(app)


def main(prog_name: str | None = None) -> None:
    """`sluice`. A full disk ends it with a sentence: stdout may lead to one in every command."""
    try:
        app(prog_name=prog_name)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        where = f" ({error.filename})" if error.filename else ""
        sys.exit(f"Error: {error.strerror}{where}. Free some space, or write elsewhere.")


def plugin() -> None:
    """`kubectl-sluice`, which kubectl runs as `kubectl sluice`; its help shows the name that the user typed."""
    main("kubectl sluice")
