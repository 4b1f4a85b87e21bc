"""The dashboards ask only for metrics, labels and label values that exist, and are written as the code says."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice.monitoring.dashboards import DASHBOARDS
from sluice.monitoring.dashboards.grafana import dashboard_json
from sluice.monitoring.dashboards.panel import Dashboard
from sluice.monitoring.files import files
from tests.monitoring.known import SERIES, faults
from tests.monitoring.promql_names import Selector, names_in
from tests.operator.security.chart_objects import stored

ROOT = Path(__file__).parents[2]
QUERIES = [
    (dashboard.uid, panel.title, query.expression)
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for query in panel.queries
]


@pytest.mark.parametrize(("uid", "title", "expression"), QUERIES)
def test_a_query_asks_for_what_exists(uid: str, title: str, expression: str) -> None:
    assert faults(expression) == []
    assert names_in(expression).selectors


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("sum(rate(sluice_request_total[5m]))", "nothing exports sluice_request_total"),
        ('sluice_requests_total{outcom="error"}', "sluice_requests_total has no label outcom"),
        ('sluice_requests_total{outcome=~"error|lost"}', "sluice_requests_total has no outcome=lost"),
        (
            "sum by (modl) (sluice_requests_running)",
            "no series of sum by (modl) (sluice_requests_running) has the label modl",
        ),
        ('up{job="sluice"}', "no monitor gives the job sluice"),
        (
            "sum by (le) (sluice_requests_running)",
            "no series of sum by (le) (sluice_requests_running) has the label le",
        ),
    ],
)
def test_a_wrong_query_is_found(expression: str, fault: str) -> None:
    assert faults(expression) == [fault]


def test_the_tokenizer_reads_nested_expressions() -> None:
    names = names_in(
        'histogram_quantile(0.9, sum by (le) (rate(a_bucket{x="b}",y=~"c|d"}[5m]))) / on() group_left() b:c > 1'
    )
    assert names.selectors == [Selector("a_bucket", (("x", "=", "b}"), ("y", "=~", "c|d"))), Selector("b:c")]
    assert names.groupings == {"le"}
    with pytest.raises(ValueError, match=r"no PromQL at .*;"):
        names_in("a ; b")


def legend_labels(legend: str) -> set[str]:
    return {part.partition("}}")[0] for part in legend.split("{{")[1:]}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_a_legend_names_labels_that_the_result_has(dashboard: Dashboard) -> None:
    for panel in dashboard.panels:
        for query in panel.queries:
            names = names_in(query.expression)
            whole = {"pod", "namespace", "llmdeployment"} if " by (" not in query.expression else set()
            assert legend_labels(query.legend) <= names.groupings | whole, (panel.title, query)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_panels_do_not_overlap_and_fill_24_columns_at_most(dashboard: Dashboard) -> None:
    made: dict[str, Any] = json.loads(dashboard_json(dashboard))
    taken: set[tuple[int, int]] = set()
    for panel in made["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"])
    assert all(panel["description"].endswith(".") for panel in made["panels"] if panel["type"] != "row")


def test_each_measured_series_is_on_some_dashboard() -> None:
    """A metric that no dashboard shows is one that an operator of the system must find by reading code."""
    shown = {
        SERIES[each.metric].name for _, _, text in QUERIES for each in names_in(text).selectors if each.metric in SERIES
    }
    assert {metric.name for metric in SERIES.values()} - shown == {
        "sluice_api_keys",  # constants and inputs of the others
        "sluice_cache_config_info",
        "sluice_gateway_cached_prompt_tokens_total",
        "sluice_gateway_chosen_total",
        "sluice_gateway_expected_cached_prompt_tokens_total",
        "sluice_gateway_followed_replicas",  # only with gateway.kvEvents
        "sluice_gateway_prompt_tokens_total",
        "sluice_gateway_requests_in_flight",
        "sluice_kv_block_seconds_total",
        "sluice_model_info",
        "sluice_mounted_file_reload_failures_total",
        "sluice_mounted_file_reloads_total",
        "sluice_paced",
        "sluice_shadow_unreachable_requests_total",
        "sluice_step_model_steps",
    }


def test_the_committed_files_are_those_of_the_code() -> None:
    made = files()
    assert len(made) == 5
    assert {path: (ROOT / path).read_text() for path in made} == made
    assert {path.name for path in (ROOT / "charts/sluice/dashboards").iterdir()} == {
        f"{one.uid}.json" for one in DASHBOARDS
    }


def test_the_chart_ships_each_dashboard_for_grafanas_sidecar() -> None:
    maps = [each for each in stored("monitored", "ConfigMap") if "grafana_dashboard" in each["metadata"]["labels"]]
    shipped = {json.loads(text)["uid"]: text for each in maps for text in each["data"].values()}
    assert shipped.keys() == {each.uid for each in DASHBOARDS}
    for dashboard in DASHBOARDS:
        assert shipped[dashboard.uid] == dashboard_json(dashboard).rstrip("\n")
    values = yaml.safe_load((ROOT / "charts/sluice/values.yaml").read_text())
    assert maps[0]["metadata"]["labels"]["grafana_dashboard"] == values["metrics"]["dashboards"]["labelValue"]
