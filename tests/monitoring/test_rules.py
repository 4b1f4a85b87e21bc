"""The alerts: each fires when it should and not otherwise, by promtool; each has its section of the runbook."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice.monitoring.alerts.rule import Alert
from sluice.monitoring.alerts.rules import ALERTS
from sluice.monitoring.alerts.slo import RECORDINGS
from tests.foreign_schemas import faults as schema_faults
from tests.monitoring.alert_cases import CASES, Case
from tests.monitoring.known import faults
from tests.operator.security.chart_objects import VARIANTS, stored

CHART = Path(__file__).parents[2] / "charts/sluice"
RULES = CHART / "files/rules.yaml"
RUNBOOK = (CHART / "RUNBOOK.md").read_text()


def promtool(*arguments: str) -> None:
    """Run it. Fails with its output; skips where it is not installed."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("Prometheus is not installed")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", "--lint-fatal", str(RULES))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.story}")
def test_an_alert_fires_by_its_series(case: Case, tmp_path: Path) -> None:
    firing = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) or vector(0)'
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "promql_expr_test": [
            {
                "expr": firing,
                "eval_time": f"{case.minutes}m",
                "exp_samples": [{"labels": "{}", "value": int(case.firing)}],
            }
        ],
    }
    story = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(story))
    promtool("test", "rules", str(tmp_path / "case.yaml"))


def test_each_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    assert {(case.alert, case.firing) for case in CASES} == {
        (alert.name, fires) for alert in ALERTS for fires in (True, False)
    }


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: each.name)
def test_an_alert_asks_for_what_exists_and_its_summary_names_labels_that_it_has(alert: Alert) -> None:
    assert faults(alert.expression) == []
    named = set(re.findall(r"\$labels\.(\w+)", alert.summary))
    grouped = set(re.findall(r"\w+", " ".join(re.findall(r" by \(([^)]*)\)", alert.expression))))
    recorded = {"namespace", "llmdeployment"} if "llmdeployment:" in alert.expression else set()
    target = {"namespace", "pod"} if alert.expression.startswith("up{") else set()
    assert named <= grouped | recorded | target


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda each: each.name)
def test_a_recording_rule_asks_for_what_exists(recording: Any) -> None:
    assert faults(recording.expression) == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: each.name)
def test_an_alert_has_its_section_of_the_runbook(alert: Alert) -> None:
    section = RUNBOOK.partition(f"### {alert.name}\n")[2].partition("\n### ")[0]
    assert alert.expression in section and alert.meaning in section
    assert all(f"{number}. {step}" in section for number, step in enumerate(alert.steps, 1))
    assert len(alert.meaning.split()) >= 8


def test_the_runbook_has_no_section_without_an_alert() -> None:
    assert re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE) == [alert.name for alert in ALERTS]


def test_the_chart_ships_the_rules_with_its_own_objective() -> None:
    (rule,) = stored("monitored", "PrometheusRule")
    assert schema_faults(rule, "prometheusrules") == []
    assert rule["spec"] == yaml.safe_load(RULES.read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert all(stored(variant, "PrometheusRule") == [] for variant in VARIANTS if variant != "monitored")
