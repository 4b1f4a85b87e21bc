"""Who reaches which port, by the policies of the chart and of the engines together."""

from typing import Any

import pytest

from sluice import contract
from sluice_operator import render
from sluice_operator.api import parse
from sluice_operator.render import names
from sluice_operator.settings import InvalidSettings, NetworkPeers, from_environment
from tests.operator.security.chart_objects import NAMESPACE, RELEASE, environment, stored
from tests.operator.security.policy_evaluator import Object, Pod, is_allowed

GATEWAY_PORT = 8080
OPERATOR_PORT = 8080


def of_release(component: str, namespace: str = NAMESPACE) -> Pod:
    return Pod(namespace, {contract.LABEL_NAME: f"sluice-{component}", contract.LABEL_INSTANCE: RELEASE})


ENGINE = Pod("apps", names.labels("chat"))
OPERATOR, GATEWAY = of_release("operator"), of_release("gateway")
PROMETHEUS = Pod("monitoring", {contract.LABEL_NAME: "prometheus"})
NEIGHBOUR = Pod("apps", {"app": "shop"})  # in the namespace of the LLMDeployment
STRANGER = Pod("other", {"app": "shop"})
OUTSIDE = Pod(address="203.0.113.7")
# They have the labels of a peer, which anyone may set, and another namespace.
IMPOSTORS = (
    of_release("operator", "other"),
    of_release("gateway", "other"),
    Pod("other", PROMETHEUS.labels),
    Pod("apps", GATEWAY.labels),
)


def peers(variant: str = "default") -> NetworkPeers:
    given = from_environment(environment(variant)).network_peers
    assert given is not None
    return given


def engine_policy(given: NetworkPeers, uri: str = "pvc://models/m", *variables: str) -> Object:
    env = [{"name": name, "value": "http://mirror.corp:8080"} for name in variables]
    document = {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": {"name": "chat", "namespace": "apps", "uid": "u-1"},
        "spec": {"model": {"uri": uri}, "engine": {"template": {"env": env}}, "scaling": {"maxReplicas": 2}},
    }
    return render.network_policy(parse(document), given)


def policies(variant: str = "default") -> list[Object]:
    return [*stored(variant, "NetworkPolicy"), engine_policy(peers(variant))]


@pytest.mark.parametrize("variant", ["default", "one_namespace"])
def test_the_admin_port_of_an_engine_is_for_operator_gateway_and_prometheus(variant: str) -> None:
    given = policies(variant)
    for peer in (OPERATOR, GATEWAY, PROMETHEUS):
        assert is_allowed(given, peer, ENGINE, contract.ADMIN_PORT), peer
    for peer in (NEIGHBOUR, STRANGER, OUTSIDE, ENGINE, *IMPOSTORS):
        assert not is_allowed(given, peer, ENGINE, contract.ADMIN_PORT), peer


def test_the_data_port_of_an_engine_is_for_the_gateway_and_its_own_namespace() -> None:
    given = policies()
    for peer in (GATEWAY, NEIGHBOUR):
        assert is_allowed(given, peer, ENGINE, contract.DATA_PORT), peer
    for peer in (STRANGER, OUTSIDE, PROMETHEUS, OPERATOR, of_release("gateway", "other")):
        assert not is_allowed(given, peer, ENGINE, contract.DATA_PORT), peer


def test_every_other_port_of_an_engine_is_closed() -> None:
    given = policies()
    assert not any(is_allowed(given, peer, ENGINE, 22) for peer in (OPERATOR, GATEWAY, PROMETHEUS, NEIGHBOUR))
    assert not is_allowed(given, GATEWAY, ENGINE, contract.DATA_PORT, "UDP")


def test_without_a_gateway_no_rule_names_one() -> None:
    given = policies("no_gateway")
    assert [each["metadata"]["name"] for each in given] == ["blue-sluice", "chat-engine"]
    assert is_allowed(given, NEIGHBOUR, ENGINE, contract.DATA_PORT)
    assert is_allowed(given, OPERATOR, ENGINE, contract.ADMIN_PORT)
    assert not is_allowed(given, GATEWAY, ENGINE, contract.DATA_PORT)
    assert not is_allowed(given, GATEWAY, ENGINE, contract.ADMIN_PORT)


def test_the_gateway_serves_everyone_and_shows_its_admin_port_to_operator_gateways_and_prometheus() -> None:
    given = policies()
    everyone = (OPERATOR, PROMETHEUS, NEIGHBOUR, STRANGER, OUTSIDE)
    assert all(is_allowed(given, peer, GATEWAY, GATEWAY_PORT) for peer in everyone)
    reached = [
        peer
        for peer in (*everyone, GATEWAY, *IMPOSTORS)
        if is_allowed(given, peer, GATEWAY, contract.GATEWAY_ADMIN_PORT)
    ]
    assert reached == [OPERATOR, PROMETHEUS, GATEWAY]


def test_only_prometheus_reads_the_operator() -> None:
    peers = (PROMETHEUS, GATEWAY, ENGINE, NEIGHBOUR, STRANGER, OUTSIDE, *IMPOSTORS)
    assert [peer for peer in peers if is_allowed(policies(), peer, OPERATOR, OPERATOR_PORT)] == [PROMETHEUS]


def test_operator_and_gateway_reach_what_they_call() -> None:
    """The API server is outside the pods' networks, at a port that depends on the cluster."""
    given = policies()
    for source in (OPERATOR, GATEWAY):
        assert is_allowed(given, source, OUTSIDE, 6443)
        assert is_allowed(given, source, OUTSIDE, 53, "UDP")


def test_the_pod_of_helm_test_reaches_the_gateway_and_dns_and_nothing_reaches_it() -> None:
    given, pod = policies(), of_release("test")
    assert is_allowed(given, pod, GATEWAY, GATEWAY_PORT) and is_allowed(given, pod, OUTSIDE, 53, "UDP")
    closed = ((GATEWAY, 8081), (OPERATOR, OPERATOR_PORT), (ENGINE, contract.DATA_PORT), (OUTSIDE, 6443))
    assert not any(is_allowed(given, pod, peer, port) for peer, port in closed)
    assert not any(is_allowed(given, peer, pod, 8080) for peer in (OPERATOR, GATEWAY, PROMETHEUS, STRANGER))


@pytest.mark.parametrize(
    ("uri", "variables", "reached"),
    [
        ("pvc://models/m", (), set()),
        ("pvc://models/m", ("HF_ENDPOINT",), set()),
        ("hf://org/name", (), {"dns", "https"}),
        ("s3://bucket/m", (), {"dns", "https"}),
        ("hf://org/name", ("HF_ENDPOINT",), {"dns", "https", "mirror"}),
        ("s3://bucket/m", ("AWS_ENDPOINT_URL",), {"dns", "https", "mirror"}),
        ("hf://org/name", ("https_proxy",), {"dns", "https", "mirror"}),
        ("hf://org/name", ("HF_HUB_VERBOSITY",), {"dns", "https"}),
    ],
)
def test_an_engine_reaches_its_model_source_and_nothing_else(
    uri: str, variables: tuple[str, ...], reached: set[str]
) -> None:
    given = [engine_policy(peers(), uri, *variables)]
    ways = {"dns": (53, "UDP"), "https": (443, "TCP"), "mirror": (8080, "TCP"), "udp": (8080, "UDP")}
    assert {way for way, port in ways.items() if is_allowed(given, ENGINE, OUTSIDE, *port)} == reached


def test_the_policy_selects_the_pods_of_one_resource() -> None:
    given = [engine_policy(peers())]
    assert is_allowed(given, STRANGER, Pod("apps", names.labels("other")), contract.ADMIN_PORT)
    assert is_allowed(given, STRANGER, Pod("other", names.labels("chat")), contract.ADMIN_PORT)


def test_with_the_value_off_there_is_no_policy() -> None:
    assert stored("no_policies", "NetworkPolicy") == []
    assert from_environment(environment("no_policies")).network_peers is None


@pytest.mark.parametrize(
    "wrong",
    ["[]", "no json", '{"admin": []}', '{"admin": [], "data": []}', '{"admin": [{}], "data": []}',
     '{"admin": [{"podSelector": {}}], "data": ["x"]}', '{"admin": [{"pods": {}}], "data": []}',
     '{"admin": {"podSelector": {}}, "data": []}'],
)  # fmt: skip
def test_wrong_peers_end_the_start_with_a_sentence(wrong: str) -> None:
    with pytest.raises(InvalidSettings, match=r"SLUICE_NETWORK_PEERS .* it must"):
        from_environment({"SLUICE_NETWORK_PEERS": wrong})


def test_a_policy_is_complete_as_applied() -> None:
    """Server-side apply replaces these lists and the selector as a whole, so a rule added by hand does not stay."""
    spec: dict[str, Any] = engine_policy(peers())["spec"]
    assert set(spec) == {"podSelector", "policyTypes", "ingress", "egress"}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
