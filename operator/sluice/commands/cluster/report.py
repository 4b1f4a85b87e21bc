"""`sluice report`: a bundle for those who help, without secrets."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sluice import contract
from sluice.commands.cluster.access import (
    AllNamespaces,
    Format,
    Namespace,
    Output,
    chosen_namespace,
    print_json,
    print_text,
    with_cluster,
)

if TYPE_CHECKING:
    from sluice.cluster.reader import Reader
    from sluice.cluster.report.parts import Collector


def report(
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="The bundle; default: sluice-report-TIME.tar.gz here.")
    ] = None,
    output: Output = Format.TEXT,
    tail: Annotated[int, typer.Option(min=1, max=1_000_000, help="The last lines of each log.")] = 2000,
) -> None:
    """Pack resources, pods, events, checks, versions and logs into one file, which holds no secret.

    Values of environment variables and options whose name is that of a secret, and all that looks like a key, are
    replaced by REDACTED. Look through the file before you pass it on.

    Names what may not be read, and exits with 1 only if that is everything.
    """
    now, where = time.time(), chosen_namespace("report", namespace, every=all_namespaces)
    file = file or Path(time.strftime("sluice-report-%Y%m%d-%H%M%S.tar.gz", time.localtime(now)))

    async def pack(reader: "Reader") -> "tuple[int, Collector]":
        from sluice.cluster.report.archive import write
        from sluice.cluster.report.parts import Collector

        collector = Collector(reader, where, tail)
        return await write(collector.parts(), file, now), collector

    try:
        count, collector = with_cluster("report", pack)
    except FileExistsError as error:
        typer.echo(f"{file} exists: choose another name with --file.", err=True)
        raise typer.Exit(contract.EXIT_USAGE) from error
    except OSError as error:
        typer.echo(f"{file} cannot be written: {error.strerror}. Choose another place with --file.", err=True)
        raise typer.Exit(contract.EXIT_USAGE) from error
    if output is Format.JSON:
        found = {"file": str(file), "files": count, "redactedValues": collector.redactor.count}
        print_json(found | {"faults": collector.faults})
    else:
        print_text(f"{file}: {count} files, {collector.redactor.count} values redacted.")
        for fault in collector.faults:
            print_text(f"not contained: {fault}", err=True)
    if not collector.has_read:
        print_text(
            "Nothing could be read. Ask for the view role in this namespace, or choose another kubeconfig.", err=True
        )
        raise typer.Exit(contract.EXIT_FAILED)
