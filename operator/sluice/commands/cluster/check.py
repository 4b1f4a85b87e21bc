"""`sluice check`: whether a cluster is ready for Sluice, and whether an installed release works."""

from typing import TYPE_CHECKING, Annotated

import typer

from sluice import contract
from sluice.commands.cluster.access import (
    Format,
    Output,
    namespace_name,
    need_operator_extra,
    on_cluster,
    print_json,
    print_text,
    width,
)

if TYPE_CHECKING:
    from sluice.cluster.checks.observation import Observation
    from sluice.cluster.reader import Reader


def check(
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", callback=namespace_name, help="The release's namespace; default: any."),
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Check API server, permissions, CRD, GPUs, operator, versions, gateway and metrics; each fault with a remedy.

    Exits with 1 on a failure and with 0 on warnings, for example before an installation. Nothing is changed.
    """
    need_operator_extra("check")
    from sluice.cluster.checks.judge import judge, no_cluster
    from sluice.cluster.checks.result import as_json, has_failure, result_lines
    from sluice_kube.errors import ClusterError

    try:
        results = judge(on_cluster(lambda reader: _observe(reader, namespace or "")))
    except ClusterError as error:
        results = [no_cluster(error)]
    if output is Format.JSON:
        print_json(as_json(results))
    else:
        print_text("\n".join(result_lines(results, width())))
    if has_failure(results):
        raise typer.Exit(contract.EXIT_FAILED)


async def _observe(reader: "Reader", namespace: str) -> "Observation":
    from sluice.cluster.checks.observation import observe

    return await observe(reader, namespace)
