"""Whether an expression asks for what exists: series of the definitions, their labels and label values, recorded series."""

import re
from collections.abc import Iterator

from sluice import contract
from sluice.metrics import ALL, Metric
from sluice.monitoring.alerts.slo import BUDGET, RECORDINGS
from sluice.monitoring.promql import DEPLOYMENT
from tests.monitoring.promql_names import Selector, names_in

TARGET_LABELS = {"namespace", "pod", "job", contract.SERIES_LABEL}  # by a monitor
JOBS = {"sluice-engine", "sluice-gateway", "sluice-operator"}
FOREIGN = {"up": {"job", *TARGET_LABELS}, "ALERTS": {"alertname", "alertstate"}}  # Prometheus' own
RECORDED = {BUDGET: set[str](), **{each.name: set(DEPLOYMENT) for each in RECORDINGS}}
SERIES: dict[str, Metric] = {series: metric for metric in ALL for series in metric.series}


def faults(expression: str) -> list[str]:
    """One sentence per name, label or label value that no process exports."""
    names = names_in(expression)
    groupings = set(names.groupings)
    labels: set[str] = set()
    found: list[str] = []
    for selector in names.selectors:
        found += _faults(selector)
        labels |= _labels(selector.metric)
    return found + [f"no series of {expression} has the label {label}" for label in sorted(groupings - labels)]


def _labels(name: str) -> set[str]:
    if name in SERIES:
        own = {label.name for label in SERIES[name].labels}
        return own | TARGET_LABELS | ({"le"} if name.endswith("_bucket") else set())
    return FOREIGN.get(name) or RECORDED.get(name) or set()


def _faults(selector: Selector) -> Iterator[str]:
    name = selector.metric
    if name not in SERIES and name not in FOREIGN and name not in RECORDED:
        yield f"nothing exports {name}"
        return
    for label, operator, value in selector.matchers:
        if label not in _labels(name):
            yield f"{name} has no label {label}"
        elif label == "job" and value not in JOBS:
            yield f"no monitor gives the job {value}"
        elif name in SERIES and (definition := SERIES[name].label(label)) is not None and definition.values:
            values = value.split("|") if operator in ("=~", "!~") else [value]
            yield from (f"{name} has no {label}={one}" for one in values if one not in definition.values)


def windows(expression: str, rates: str = "5m") -> str:
    """The expression with Grafana's variables replaced by what they stand for when all is selected; `rates`: their range."""
    for name, value in (("$__rate_interval", rates), ("$namespace", ".*"), ("$llmdeployment", ".*")):
        expression = expression.replace(name, value)
    if left := re.search(r"\$\w+", expression):
        raise ValueError(f"unknown variable {left[0]}")
    return expression
