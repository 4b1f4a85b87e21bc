"""`sluice explain NAME`: the reasons for the replicas and limits of an LLMDeployment, in the operator's sentences."""

import asyncio
from typing import Annotated, Any

import typer

from sluice import contract


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("explain")(explain)


def explain(
    name: Annotated[str, typer.Argument(help="metadata.name of the LLMDeployment.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
) -> None:
    """Print the last decisions and the conditions of an LLMDeployment."""
    try:
        from sluice_operator.cluster.client import ClusterError
        from sluice_operator.cluster.kube import KubeClient, connect
    except ModuleNotFoundError as error:
        typer.echo(f"`sluice explain` needs {error.name}: pip install 'sluice[operator]'", err=True)
        raise typer.Exit(contract.EXIT_USAGE) from error

    async def fetch() -> dict[str, Any] | None:
        client = await connect()
        async with client:
            return await KubeClient(client).get(contract.KIND, namespace, name)

    try:
        resource = asyncio.run(fetch())
    except ClusterError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(contract.EXIT_FAILED) from error
    if resource is None:
        typer.echo(f"no LLMDeployment {name} in namespace {namespace}: see kubectl get llmd -A", err=True)
        raise typer.Exit(contract.EXIT_FAILED)
    for line in sentences(resource):
        typer.echo(line)


def sentences(resource: dict[str, Any]) -> list[str]:
    """The status as lines of text: the summary, the conditions that need attention, and each decision with its time."""
    status = resource.get("status") or {}
    if not status:
        return ["No operator has reconciled this resource. Check that one is running."]
    lines = [f"{status.get('replicasSummary', '?')} replicas ready. {status.get('reason', '')}".strip()]
    lines += [
        f"{entry['type']}={entry['status']} ({entry['reason']}): {entry.get('message', '')}"
        for entry in status.get("conditions") or ()
        if (entry["type"], entry["status"]) in _REPORTED
    ]
    decisions = status.get("decisions") or ()
    lines += [f"{entry['time']}  {_shown(entry)}" for entry in decisions]
    return lines if decisions else [*lines, "No decision yet: no change was needed."]


_REPORTED = frozenset(
    {
        ("Ready", "False"),
        ("AdmissionActive", "False"),
        ("MetricsAvailable", "False"),
        ("SLOMet", "False"),
        ("ScalingActive", "False"),
        ("Paused", "True"),
    }
)


def _shown(entry: dict[str, Any]) -> str:
    what = "replicas" if entry.get("kind") == "replicas" else "concurrent requests per replica"
    return str(entry.get("message") or f"{entry.get('from')} → {entry.get('to')} {what}: {entry.get('reason')}.")
