"""What the commands that read a cluster have in common: the connection, the format, and errors as one sentence."""

import asyncio
import json
import re
import shutil
import sys
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from sluice import contract
from sluice.sentences import escaped

if TYPE_CHECKING:
    from sluice.cluster.reader import Reader

T = TypeVar("T")
_OBJECT_NAME: Final = r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?"
WIDTH: Final = 80  # of a table that is not shown on a terminal


class Format(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="text, or json for a program.")]


def object_name(given: str | None) -> str | None:
    """Refuse what is no name of an object: as a part of an API path it leads to another object, or to a list."""
    if given is not None and re.fullmatch(_OBJECT_NAME, given) is None:
        raise typer.BadParameter(
            f"{given!r} is no name: give lower-case letters, digits and - . as kubectl shows them."
        )
    return given


def namespace_name(given: str | None) -> str | None:
    """The same for a namespace. An empty one is as good as none, as for kubectl."""
    return object_name(given or None)


Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", callback=namespace_name, help="The namespace; default: that of the current context."
    ),
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]


def with_cluster(command: str, read: "Callable[[Reader], Awaitable[T]]") -> T:
    """Run `read` on the cluster of this pod or of KUBECONFIG. Exits with a sentence if that fails."""
    need_operator_extra(command)
    from sluice_kube.errors import ClusterError

    try:
        return on_cluster(read)
    except ClusterError as error:
        print_text(f"{error}{_hint(error.status)}", err=True)
        raise typer.Exit(contract.EXIT_FAILED) from error


def on_cluster(read: "Callable[[Reader], Awaitable[T]]") -> T:
    """Run `read` on the cluster of this pod or of KUBECONFIG. Raises ClusterError."""
    from sluice.cluster.reader import Reader
    from sluice_kube import api

    async def connected() -> T:
        client = await api.connect()
        async with client:
            return await read(Reader(client))

    return asyncio.run(connected())


def chosen_namespace(command: str, given: str | None, *, every: bool = False) -> str:
    """The namespace to read; "" for all. Exits with a sentence where the packages of the extra are missing."""
    if every:
        return ""
    if given is not None:
        return given
    need_operator_extra(command)
    from sluice_kube.api import context_namespace

    return context_namespace()


def need_operator_extra(command: str) -> None:
    """Exit with a sentence where the packages of the extra are missing."""
    try:
        import sluice_kube.api  # noqa: F401
    except ModuleNotFoundError as error:
        typer.echo(f"`sluice {command}` needs {error.name}: pip install 'sluice[operator]'", err=True)
        raise typer.Exit(contract.EXIT_USAGE) from error


def _hint(status: int) -> str:
    """What to do about an HTTP status of the API server."""
    if status == 404:
        return ". Is Sluice installed? Run sluice check."
    if status in (401, 403):
        return ". Ask for the view role in this namespace, or choose another kubeconfig."
    return ""


def print_text(text: str, *, err: bool = False) -> None:
    """Print a text, parts of which others have written, such as the URI of a model or the answer of a pod."""
    typer.echo(escaped(text), err=err)


def print_json(value: Any) -> None:
    """Print a value for a program."""
    typer.echo(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """The value as JSON. What would command a terminal, and what the output cannot encode, is escaped."""
    text = escaped(json.dumps(value, indent=indent, ensure_ascii=False))
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return text


def width() -> int:
    """The width of the terminal, or 80 where there is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
