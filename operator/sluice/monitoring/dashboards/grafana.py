"""Writes a dashboard as the JSON that Grafana imports. Layout: panels from left to right, a new line when one is full."""

import json
from collections.abc import Iterator
from typing import Any, Final

from sluice import contract
from sluice.monitoring.dashboards.panel import Dashboard, Panel

_COLUMNS: Final = 24
_HEIGHT: Final = {"timeseries": 8, "stat": 4}
_SCHEMA: Final = 39  # of Grafana 10.4 and newer, which migrate it upwards
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


def dashboard_json(dashboard: Dashboard) -> str:
    """Return the dashboard as JSON text with a newline at its end."""
    made: Json = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.text,
        "tags": ["sluice"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), _variable("namespace", ""), _variable("llmdeployment", "$namespace")]},
        "panels": list(_placed(dashboard)),
    }
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _placed(dashboard: Dashboard) -> Iterator[Json]:
    number, top = 1, 0
    for row in dashboard.rows:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            **_place(0, top, 24, 1),
        }
        number, top, left, height = number + 1, top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > _COLUMNS:
                top, left, height = top + height, 0, 0
            yield {"id": number, **_panel(panel), **_place(left, top, panel.width, _HEIGHT[panel.kind])}
            number, left, height = number + 1, left + panel.width, max(height, _HEIGHT[panel.kind])
        top += height


def _place(left: int, top: int, width: int, height: int) -> Json:
    return {"gridPos": {"x": left, "y": top, "w": width, "h": height}}


def _panel(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit} | ({"min": 0} if panel.from_zero else {})
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 30 if panel.stacked else 0, "stacking": stacking}
    if panel.good_from is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.good_from}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    targets = [
        {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": query.expression, "legendFormat": query.legend}
        for index, query in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
    }


def _datasource() -> Json:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _variable(label: str, inside: str) -> Json:
    """A list of the label's values, all by default. The metric is one that every engine has."""
    series = contract.REQUESTS_RUNNING + (f'{{namespace=~"{inside}"}}' if inside else "")
    return {
        "name": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({series}, {label})", "refId": "A"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }
