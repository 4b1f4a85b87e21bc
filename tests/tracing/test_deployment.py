"""How traces are switched on in a cluster: the gateway by the chart, engines by a variable that also opens their way out."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice_operator import render
from sluice_operator.api import parse
from sluice_operator.settings import NetworkPeers
from tests.operator.fake_cluster import manifest

PEERS = NetworkPeers(admin=({"podSelector": {}},))
CHART = Path(__file__).parents[2] / "charts/sluice"


def egress(*variables: str) -> list[dict[str, Any]]:
    env = [{"name": name, "value": "http://collector.monitoring:4318"} for name in variables]
    resource = parse(manifest(engine={"accelerator": {"count": 0}, "template": {"env": env}}))
    found: list[dict[str, Any]] = render.network_policy(resource, PEERS)["spec"]["egress"]
    return found


def test_an_engine_that_sends_traces_may_reach_a_collector_at_any_port() -> None:
    assert egress() == []
    dns, collector = egress("OTEL_EXPORTER_OTLP_ENDPOINT")
    assert {"port": 53, "protocol": "UDP"} in dns["ports"] and collector["ports"] == [{"protocol": "TCP"}]


@pytest.mark.parametrize("endpoint", ["", "http://collector.monitoring:4318"])
def test_the_charts_endpoint_is_a_variable_of_the_gateway(endpoint: str) -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    command = [
        helm,
        "template",
        "blue",
        str(CHART),
        "--kube-version",
        "1.34.0",
        "--set",
        f"tracing.endpoint={endpoint}",
    ]
    objects = yaml.safe_load_all(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    (pod,) = (
        each["spec"]["template"]["spec"]
        for each in objects
        if each and each["kind"] == "Deployment" and each["metadata"]["name"] == "blue-sluice-gateway"
    )
    values = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    assert values.get("OTEL_EXPORTER_OTLP_ENDPOINT", "") == endpoint
