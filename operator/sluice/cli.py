"""`sluice`: one subcommand per module of `commands/`.

A command module imports nothing heavy at module level, so that `sluice --help` is fast and each image carries only the
packages that it needs. Exit codes: 0 done, 1 failed, 2 bad input (one sentence per fault on stderr), 3 the engine died,
78 the engine can never serve as configured.
"""

import importlib
from typing import Final

import typer

app = typer.Typer(
    name="sluice",
    help="Serve LLMs on Kubernetes, or on this machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

COMMANDS: Final = ("serve", "up", "chat", "bench", "simulate", "operate", "explain", "model", "crds")

for _name in COMMANDS:
    importlib.import_module(f"sluice.commands.{_name}").register(app)
