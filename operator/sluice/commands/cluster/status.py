"""`sluice status [NAME]`: the LLMDeployments of a namespace with the reason for the state of each."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice import contract
from sluice.commands.cluster.access import (
    AllNamespaces,
    Format,
    Namespace,
    Output,
    chosen_namespace,
    object_name,
    print_json,
    print_text,
    width,
    with_cluster,
)

if TYPE_CHECKING:
    from sluice.cluster.reader import Reader


def status(
    name: Annotated[
        str | None, typer.Argument(callback=object_name, help="metadata.name of one LLMDeployment; without it, all.")
    ] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    output: Output = Format.TEXT,
) -> None:
    """Show replicas, phase, SLO attainment, KV cache occupancy and concurrency limit of LLMDeployments."""
    if name is not None and all_namespaces:
        typer.echo("A name is of one namespace: give -n NAMESPACE instead of --all-namespaces.", err=True)
        raise typer.Exit(contract.EXIT_USAGE)
    where = chosen_namespace("status", namespace, every=all_namespaces)
    resources = with_cluster("status", lambda reader: _read(reader, where, name))
    if name is not None and not resources:
        typer.echo(f"no LLMDeployment {name} in namespace {where}: see sluice status -A", err=True)
        raise typer.Exit(contract.EXIT_FAILED)
    from sluice.cluster.status_table import status_lines
    from sluice.cluster.summary import summarise

    found = sorted((summarise(each) for each in resources), key=lambda each: (each.namespace, each.name))
    if output is Format.JSON:
        print_json({"items": [each.as_json() for each in found]} if name is None else found[0].as_json())
    elif found:
        print_text("\n".join(status_lines(found, width(), namespaces=all_namespaces)))
    else:
        place = "any namespace" if all_namespaces else f"namespace {where}"
        typer.echo(f"There is no LLMDeployment in {place}." + ("" if all_namespaces else " See sluice status -A."))


async def _read(reader: "Reader", namespace: str, name: str | None) -> list[dict[str, Any]]:
    from sluice.cluster.reader import deployments_path

    if name is None:
        return await reader.list(deployments_path(namespace))
    found = await reader.find(deployments_path(namespace, name))
    return [] if found is None else [found]
