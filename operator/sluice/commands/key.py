"""`sluice key`: makes API keys for the key file of `sluice serve` and of spec.auth.apiKeysSecretRef."""

import hashlib
import secrets
from typing import Annotated, Final

import typer

from sluice import contract

PREFIX: Final = "sk-"
RANDOM_BYTES: Final = 32


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    keys = typer.Typer(help="API keys of a server.", no_args_is_help=True)
    keys.command("new")(new)
    app.add_typer(keys, name="key")


def new(
    name: Annotated[str, typer.Argument(help="Name of the tenant that the key is for, such as search or team-a.")],
) -> None:
    """Make an API key: its entry for the key file goes to stdout, the key itself to stderr, this once.

    `sluice key new NAME >> keys.yaml` adds the entry to a key file. The file holds the key's SHA-256, not the key.
    """
    key = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    if not contract.KEY_NAME.fullmatch(name):
        typer.echo(f"NAME must be {contract.KEY_NAME_WORDS}; not {name!r}.", err=True)
        raise typer.Exit(contract.EXIT_USAGE)
    typer.echo(f"- {{name: '{name}', sha256: {hashlib.sha256(key.encode()).hexdigest()}}}")
    typer.echo(f"The key, which is shown only now: {key}", err=True)
