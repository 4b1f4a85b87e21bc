"""The chart's monitors: valid by the Prometheus Operator's schemas, of pods and ports that exist, admitted by the policies."""

import pytest

from sluice import contract
from sluice_operator.settings import from_environment
from tests.foreign_schemas import faults
from tests.operator.security.chart_objects import VARIANTS, Object, environment, stored


def only(kind: str, name: str) -> Object:
    (found,) = (each for each in stored("monitored", kind) if each["metadata"]["name"] == name)
    return found


@pytest.mark.parametrize(
    ("kind", "plural", "name"),
    [
        ("PodMonitor", "podmonitors", "blue-sluice-gateway"),
        ("ServiceMonitor", "servicemonitors", "blue-sluice"),
    ],
)
def test_a_monitor_is_valid_and_carries_the_labels_that_prometheus_selects_by(
    kind: str, plural: str, name: str
) -> None:
    monitor = only(kind, name)
    assert faults(monitor, plural) == []
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.parametrize(
    ("kind", "plural", "name", "endpoints"),
    [
        ("PodMonitor", "podmonitors", "blue-sluice-gateway", "podMetricsEndpoints"),
        ("ServiceMonitor", "servicemonitors", "blue-sluice", "endpoints"),
    ],
)
def test_with_tokens_prometheus_sends_that_of_the_releases_secret(
    kind: str, plural: str, name: str, endpoints: str
) -> None:
    (monitor,) = (each for each in stored("read_tokens", kind) if each["metadata"]["name"] == name)
    assert faults(monitor, plural) == []
    credentials = {"name": from_environment(environment("read_tokens")).read_secret, "key": contract.READ_TOKEN_KEY}
    assert [each["authorization"] for each in monitor["spec"][endpoints]] == [{"credentials": credentials}]
    assert all("authorization" not in each for each in only(kind, name)["spec"][endpoints])


def test_with_tokens_operator_and_gateway_ask_and_the_gateway_waits_for_its_key() -> None:
    assert from_environment(environment("read_tokens")).metrics_auth == "token"
    (gateway,) = (each for each in stored("read_tokens", "Deployment") if each["metadata"]["name"].endswith("-gateway"))
    pod = gateway["spec"]["template"]["spec"]
    assert "--metrics-auth=token" in pod["containers"][0]["args"]
    (volume,) = (each["secret"] for each in pod["volumes"] if each["name"] == "read-key")
    assert "optional" not in volume
    assert volume["items"] == [{"key": contract.READ_KEY, "path": contract.READ_KEY}]


def test_the_gateways_monitor_selects_its_pods_and_their_admin_port() -> None:
    monitor, deployment = only("PodMonitor", "blue-sluice-gateway"), only("Deployment", "blue-sluice-gateway")
    template = deployment["spec"]["template"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    assert ports[monitor["spec"]["podMetricsEndpoints"][0]["port"]] == 8081


def test_the_operators_monitor_selects_its_metrics_service() -> None:
    monitor, service = only("ServiceMonitor", "blue-sluice"), only("Service", "blue-sluice-metrics")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_the_prometheus_of_the_policies_is_admitted_to_each_port_that_a_monitor_names() -> None:
    """With a token or without, the NetworkPolicies decide who reaches a port."""
    peers = from_environment(environment("monitored")).network_peers
    assert peers is not None
    prometheus = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    }
    assert prometheus in peers.admin
    for name, port in (("blue-sluice", 8080), ("blue-sluice-gateway", 8081)):
        rules = only("NetworkPolicy", name)["spec"]["ingress"]
        (rule,) = (each for each in rules if {"port": port, "protocol": "TCP"} in each["ports"])
        assert prometheus in rule["from"]


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - {"monitored", "read_tokens"}))
def test_a_cluster_without_the_kinds_gets_no_monitor_and_the_operator_waits_for_them(variant: str) -> None:
    assert stored(variant, "PodMonitor", "ServiceMonitor") == []
    assert from_environment(environment(variant)).pod_monitor is not None
