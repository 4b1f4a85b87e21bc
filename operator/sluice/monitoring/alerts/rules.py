"""Writes the rules as Prometheus reads them: `groups` of a rule file, which are also the spec of a PrometheusRule."""

from typing import Any, Final

import yaml

from sluice.monitoring.alerts.parts import ENGINE_ALERTS, GATEWAY_ALERTS, OPERATOR_ALERTS
from sluice.monitoring.alerts.rule import Alert
from sluice.monitoring.alerts.slo import ALERTS as SLO_ALERTS
from sluice.monitoring.alerts.slo import BUDGET, RECORDINGS

DEFAULT_BUDGET: Final = "1 - 99 / 100"  # the chart sets its metrics.rules.attainmentPercent instead
GROUPS: Final[tuple[tuple[str, tuple[Alert, ...]], ...]] = (
    ("sluice.slo", SLO_ALERTS),
    ("sluice.engines", ENGINE_ALERTS),
    ("sluice.gateways", GATEWAY_ALERTS),
    ("sluice.operator", OPERATOR_ALERTS),
)
ALERTS: Final = tuple(alert for _, alerts in GROUPS for alert in alerts)


def rules_yaml() -> str:
    """Return the rule file. Its first rule is the error budget, which the chart replaces."""
    records = [{"record": each.name, "expr": each.expression} for each in RECORDINGS]
    groups: list[dict[str, Any]] = [
        {"name": "sluice.budget", "rules": [{"record": BUDGET, "expr": f"vector({DEFAULT_BUDGET})"}]},
        {"name": "sluice.records", "rules": records},
        *({"name": name, "rules": [_rule(alert) for alert in alerts]} for name, alerts in GROUPS),
    ]
    body = yaml.safe_dump({"groups": groups}, sort_keys=False, width=120, allow_unicode=True)
    return f"# Generated from operator/sluice/monitoring by `make generate`. Do not edit.\n{body}"


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasting,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.meaning,
            "runbook": f"RUNBOOK.md#{alert.name.lower()} of the chart",
        },
    }
