"""`sluice explain NAME`: the reasons for the replicas and limits of an LLMDeployment, in the operator's sentences.

The last lines compare the last hour's prediction with what happened, and give the load that the autoscaler plans for.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sluice import contract
from sluice.cluster.summary import is_stuck
from sluice.commands.cluster.access import (
    Format,
    Namespace,
    Output,
    chosen_namespace,
    object_name,
    print_json,
    print_text,
    with_cluster,
)
from sluice.sentences import escaped

if TYPE_CHECKING:
    from sluice.cluster.reader import Reader

_NOTABLE: Final = 1.005  # smaller factors are 1.00 when printed


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("explain")(explain)


def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            callback=object_name, help="metadata.name of the LLMDeployment; not needed for --local if only one runs."
        ),
    ] = None,
    namespace: Namespace = None,
    local: Annotated[bool, typer.Option("--local", help="Explain a running sluice up on this machine.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Print the conditions and the last decisions of an LLMDeployment, and how well the autoscaler predicted."""
    if local:
        _explain_local(name, output)
        return
    if name is None:
        typer.echo("Name an LLMDeployment of the cluster, or give --local for the sluice up on this machine.", err=True)
        raise typer.Exit(contract.EXIT_USAGE)
    where = chosen_namespace("explain", namespace)
    resource = with_cluster("explain", lambda reader: _read(reader, where, name))
    if resource is None:
        typer.echo(f"no LLMDeployment {name} in namespace {where}: see sluice status -A", err=True)
        raise typer.Exit(contract.EXIT_FAILED)
    _show(resource, sentences(resource), output)


async def _read(reader: "Reader", namespace: str, name: str) -> dict[str, Any] | None:
    from sluice.cluster.reader import deployments_path

    return await reader.find(deployments_path(namespace, name))


def _explain_local(name: str | None, output: Format) -> None:
    from sluice.up.state_file import NotRunning, read_running
    from sluice.up.wording import local_words

    try:
        resource = read_running(name)
    except NotRunning as error:
        print_text(str(error), err=True)
        raise typer.Exit(contract.EXIT_FAILED) from error
    _show(resource, [local_words(line) for line in sentences(resource)], output)


_PARTS: Final = ("readyReplicas", "desiredReplicas", "conditions", "decisions", "forecast")


def _show(resource: dict[str, Any], lines: list[str], output: Format) -> None:
    if output is Format.TEXT:
        _print(lines)
        return
    metadata, status = resource.get("metadata") or {}, resource.get("status") or {}
    found = {name: metadata.get(name) for name in ("namespace", "name")} | {"sentences": lines}
    print_json(found | {name: status[name] for name in _PARTS if name in status})


def _print(lines: list[str]) -> None:
    """Print the lines; a terminal wraps them at words. A line feed inside of one is a blank."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for line in lines:
        console.print(Text(escaped(" ".join(line.split("\n")))), soft_wrap=not console.is_terminal)


def sentences(resource: dict[str, Any]) -> list[str]:
    """The status as lines of text: summary, conditions that need attention, decisions with their times, and forecast."""
    status = resource.get("status") or {}
    if not status:
        return ["No operator has reconciled this resource. Check that one is running."]
    ready, desired = status.get("readyReplicas", "?"), status.get("desiredReplicas", "?")
    lines = [f"{ready}/{desired} replicas ready. {_reason(status)}".strip()]
    lines += [
        f"{entry['type']}={entry['status']} ({entry['reason']}): {entry.get('message', '')}"
        for entry in status.get("conditions") or ()
        if (entry["type"], entry["status"]) in _REPORTED or _is_incomplete(entry, status)
    ]
    decisions = status.get("decisions") or ()
    lines += [f"{entry['time']}  {_shown(entry)}" for entry in decisions]
    if not decisions:
        lines.append("No decision yet: no change was needed.")
    target = ((resource.get("spec") or {}).get("slo") or {}).get("attainmentPercent")
    return [*lines, *_forecast(status.get("forecast") or {}, target)]


def _reason(status: dict[str, Any]) -> str:
    """The reason of the Ready condition."""
    ready = [entry for entry in status.get("conditions") or () if entry.get("type") == "Ready"]
    return str(ready[0].get("reason", "")) if ready else ""


def _is_incomplete(entry: dict[str, Any], status: dict[str, Any]) -> bool:
    """True for Progressing=False with a fault, where Ready=True hides it: some replicas serve and others never start."""
    is_fault = entry["type"] == "Progressing" and is_stuck(entry)
    return is_fault and _reason(status) != entry.get("reason")


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


def _forecast(forecast: dict[str, Any], target: str | None) -> list[str]:
    """How the last hour's prediction compared with what happened, and the load that the autoscaler plans for."""
    if "modelError" not in forecast or "growth" not in forecast:
        return ["The autoscaler has no estimate of the load yet, because no engine has returned metrics."]
    error, growth = float(forecast["modelError"]), float(forecast["growth"])
    predicted, attained = forecast.get("predictedAttainmentPercent"), forecast.get("attainmentPercent")
    if predicted is None or attained is None:
        compared = "No request of the last hour could be compared with the replay of the engines' shadow queues."
    else:
        aim = f" (target {target} %)" if target else ""
        compared = (
            f"In the last hour, the replay predicted {_percent(float(predicted))} good requests for the replicas that were "
            f"ready; {_percent(float(attained))} were good{aim}."
        )
    planned = "the load as measured"
    if error >= _NOTABLE:
        planned = f"{error:.2f} times the load, because more requests missed the SLO than the replay predicted"
    if growth >= _NOTABLE:
        planned += f", and for growth by a factor of {growth:.2f} until a replica created now would be ready"
    return [compared, f"The autoscaler plans for {planned}."]


def _percent(value: float) -> str:
    """A share with one decimal, or two where one would round it to 100 %."""
    return f"{value:.2f} %" if 99.95 <= value < 100.0 else f"{value:.1f} %"


def _shown(entry: dict[str, Any]) -> str:
    what = "replicas" if entry.get("kind") == "replicas" else "concurrent requests per replica"
    return str(entry.get("message") or f"{entry.get('from')} → {entry.get('to')} {what}: {entry.get('reason')}.")
