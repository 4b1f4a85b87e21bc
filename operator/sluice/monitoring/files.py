"""The generated files of the chart, as texts by their path in the repository."""

from pathlib import Path
from typing import Final

from sluice.monitoring.alerts.rules import rules_yaml
from sluice.monitoring.alerts.runbook import runbook
from sluice.monitoring.dashboards import DASHBOARDS
from sluice.monitoring.dashboards.grafana import dashboard_json

CHART: Final = Path("charts/sluice")


def files() -> dict[Path, str]:
    """Return every generated file. Helm packages no file from outside the chart's folder, so all are inside."""
    made = {CHART / "dashboards" / f"{each.uid}.json": dashboard_json(each) for each in DASHBOARDS}
    return made | {CHART / "files/rules.yaml": rules_yaml(), CHART / "RUNBOOK.md": runbook()}
