"""Writes the runbook: one section per alert, named as the alert is, so that its heading is a link's target."""

from typing import Final

from sluice.monitoring.alerts.rule import Alert
from sluice.monitoring.alerts.rules import GROUPS

_TITLES: Final = {
    "sluice.slo": "Service level",
    "sluice.engines": "Engines",
    "sluice.gateways": "Gateways",
    "sluice.operator": "Operator",
}
_SEVERITY: Final = {"page": "wakes a person", "ticket": "waits for working hours"}


def runbook() -> str:
    """Return the runbook as Markdown."""
    parts = [
        "<!-- Generated from operator/sluice/monitoring by `make generate`. Do not edit. -->",
        "# Runbook",
        (
            "One section per alert of the chart's PrometheusRule. The dashboards `Sluice: on call`, `Sluice: using a model` and "
            "`Sluice: capacity` show the series behind them; `kubectl sluice status`, `explain`, `check` and `report` need no "
            "Prometheus."
        ),
    ]
    for group, alerts in GROUPS:
        parts += [f"## {_TITLES[group]}", *(_section(alert) for alert in alerts)]
    return "\n\n".join(parts) + "\n"


def _section(alert: Alert) -> str:
    steps = "\n".join(f"{number}. {step}" for number, step in enumerate(alert.steps, 1))
    head = f"`severity: {alert.severity}` ({_SEVERITY[alert.severity]}), after {alert.lasting}."
    return f"### {alert.name}\n\n{head} {alert.meaning}\n\n```promql\n{alert.expression}\n```\n\n{steps}"
