"""Who reaches which port, by the policies of the chart and of the engines together."""

import json
from typing import Any

import pytest

from sluice import contract
from sluice_operator import render
from sluice_operator.api import parse
from sluice_operator.render import names
from sluice_operator.settings import EgressPeers, InvalidSettings, NetworkPeers, from_environment
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
HUB = Pod(address="198.51.100.7")
API_SERVER = Pod(address="192.0.2.5")
METADATA = Pod(address="169.254.169.254")  # credentials of the node, in a cloud
DNS = Pod("kube-system", {"k8s-app": "kube-dns"})
COLLECTOR = Pod("monitoring", {"app": "otel"})
OTHER_ENGINE = Pod("other", names.labels("chat"))
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


def engine_policy(
    given: NetworkPeers, uri: str = "pvc://models/m", *variables: str, prefix: str = "", tls: bool = False
) -> Object:
    template: Object = {"env": [{"name": name, "value": "http://mirror.corp:8080"} for name in variables]}
    if prefix:
        template["envFrom"] = [{"prefix": prefix, "secretRef": {"name": "s"}}]
    spec = {"model": {"uri": uri}, "engine": {"template": template}, "scaling": {"maxReplicas": 2}}
    document = {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": {"name": "chat", "namespace": "apps", "uid": "u-1"},
        "spec": spec | ({"auth": {"tlsSecretRef": {"name": "tls"}}} if tls else {}),
    }
    return render.network_policy(parse(document), given)


def policies(variant: str = "default", uri: str = "pvc://models/m", *variables: str, tls: bool = False) -> list[Object]:
    return [*stored(variant, "NetworkPolicy"), engine_policy(peers(variant), uri, *variables, tls=tls)]


@pytest.mark.parametrize("variant", ["default", "one_namespace"])
def test_the_admin_port_of_an_engine_is_for_operator_gateway_and_prometheus(variant: str) -> None:
    given = policies(variant)
    for peer in (OPERATOR, GATEWAY, PROMETHEUS):
        assert is_allowed(given, peer, ENGINE, contract.ADMIN_PORT), peer
    for peer in (NEIGHBOUR, STRANGER, OUTSIDE, ENGINE, *IMPOSTORS):
        assert not is_allowed(given, peer, ENGINE, contract.ADMIN_PORT), peer


def test_the_data_port_of_an_engine_is_for_the_gateway() -> None:
    given = policies()
    assert is_allowed(given, GATEWAY, ENGINE, contract.DATA_PORT)
    for peer in (NEIGHBOUR, ENGINE, STRANGER, OUTSIDE, PROMETHEUS, OPERATOR, *IMPOSTORS):
        assert not is_allowed(given, peer, ENGINE, contract.DATA_PORT), peer


@pytest.mark.parametrize(
    ("variant", "tls", "is_open"),
    [
        ("default", False, False),
        ("default", True, True),  # the gateway does not speak TLS to engines
        ("no_gateway", False, True),
        ("open_egress", False, True),  # networkPolicy.namespaceClients is Always there
        ("named_egress", False, False),  # and Never there
        ("named_egress", True, False),
    ],
)
def test_the_own_namespace_calls_engines_where_the_value_or_the_lack_of_a_gateway_says_so(
    variant: str, tls: bool, is_open: bool
) -> None:
    given = policies(variant, tls=tls)
    assert is_allowed(given, NEIGHBOUR, ENGINE, contract.DATA_PORT) is is_open
    assert is_allowed(given, GATEWAY, ENGINE, contract.DATA_PORT) is (variant != "no_gateway")
    for peer in (STRANGER, OUTSIDE):
        assert not is_allowed(given, peer, ENGINE, contract.DATA_PORT)
    assert not is_allowed(given, NEIGHBOUR, ENGINE, contract.ADMIN_PORT)


def test_without_any_client_no_rule_opens_the_data_port() -> None:
    given = [
        engine_policy(NetworkPeers(admin=({"podSelector": {"matchLabels": {"app": "x"}}},), namespace_clients="Never"))
    ]
    peers = (NEIGHBOUR, GATEWAY, OPERATOR, STRANGER, OUTSIDE)
    assert not any(is_allowed(given, peer, ENGINE, contract.DATA_PORT) for peer in peers)


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
    everyone = (PROMETHEUS, NEIGHBOUR, STRANGER, OUTSIDE)
    assert all(is_allowed(given, peer, GATEWAY, GATEWAY_PORT) for peer in everyone)
    reached = [
        peer
        for peer in (OPERATOR, *everyone, GATEWAY, *IMPOSTORS)
        if is_allowed(given, peer, GATEWAY, contract.GATEWAY_ADMIN_PORT)
    ]
    assert reached == [OPERATOR, PROMETHEUS, GATEWAY]


def test_only_prometheus_reads_the_operator() -> None:
    peers = (PROMETHEUS, GATEWAY, ENGINE, NEIGHBOUR, STRANGER, OUTSIDE, *IMPOSTORS)
    assert [peer for peer in peers if is_allowed(policies(), peer, OPERATOR, OPERATOR_PORT)] == [PROMETHEUS]


@pytest.mark.parametrize("variant", ["default", "one_namespace", "named_egress"])
def test_operator_and_gateway_reach_what_they_call_and_nothing_else(variant: str) -> None:
    given = policies(variant)
    for source in (OPERATOR, GATEWAY):
        assert is_allowed(given, source, API_SERVER, 6443)
        assert is_allowed(given, source, DNS, 53, "UDP") and is_allowed(given, source, DNS, 53)
        assert is_allowed(given, source, ENGINE, contract.ADMIN_PORT)
        closed = ((OUTSIDE, 80), (METADATA, 80), (STRANGER, 8080), (NEIGHBOUR, 5432), (OTHER_ENGINE, 22))
        assert not any(is_allowed(given, source, peer, port) for peer, port in closed)
    assert is_allowed(given, GATEWAY, ENGINE, contract.DATA_PORT)
    assert is_allowed(given, OPERATOR, GATEWAY, contract.GATEWAY_ADMIN_PORT)
    assert not is_allowed(given, GATEWAY, OPERATOR, OPERATOR_PORT) and is_allowed(given, GATEWAY, GATEWAY, 8081)
    assert is_allowed(given, OPERATOR, HUB, 443)
    engine = engine_policy(peers(variant), "hf://org/name")
    assert is_allowed([engine], ENGINE, HUB, 443) and not is_allowed([engine], ENGINE, METADATA, 80)


@pytest.mark.parametrize("port", [443, 6443, 8443, 16443])
def test_the_api_server_is_reached_at_its_usual_ports_whatever_its_address(port: int) -> None:
    given = policies()
    for address in ("10.96.0.1", "172.18.0.2", "203.0.113.9", "fd00::1"):
        assert all(is_allowed(given, source, Pod(address=address), port) for source in (OPERATOR, GATEWAY))


def test_named_peers_are_the_only_ones() -> None:
    given = policies("named_egress", "hf://org/name", "OTEL_EXPORTER_OTLP_ENDPOINT")
    for source in (OPERATOR, GATEWAY, ENGINE):
        assert is_allowed(given, source, DNS, 53, "UDP") and not is_allowed(given, source, OUTSIDE, 53, "UDP")
        assert not is_allowed(given, source, OUTSIDE, 443) and not is_allowed(given, source, OUTSIDE, 6443)
    reached = {
        (name, peer)
        for name, source in (("operator", OPERATOR), ("gateway", GATEWAY), ("engine", ENGINE))
        for peer, end, port in (("hub", HUB, 8080), ("collector", COLLECTOR, 4318), ("API server", API_SERVER, 6443))
        if is_allowed(given, source, end, port)
    }
    assert reached == {
        ("operator", "hub"),
        ("operator", "API server"),
        ("gateway", "collector"),
        ("gateway", "API server"),
        ("engine", "hub"),
        ("engine", "collector"),
    }


def test_only_engines_of_managed_namespaces_are_reached() -> None:
    assert is_allowed(policies(), GATEWAY, OTHER_ENGINE, contract.DATA_PORT)
    assert not is_allowed(policies("one_namespace"), GATEWAY, OTHER_ENGINE, contract.DATA_PORT)
    assert not is_allowed(policies("one_namespace"), OPERATOR, OTHER_ENGINE, contract.ADMIN_PORT)


def test_with_open_egress_everyone_is_reached() -> None:
    given = policies("open_egress")
    ends = ((OUTSIDE, 80), (METADATA, 80), (API_SERVER, 7443), (STRANGER, 5432))
    assert all(is_allowed(given, source, *end) for source in (OPERATOR, GATEWAY, ENGINE) for end in ends)
    assert not is_allowed(given, STRANGER, ENGINE, contract.DATA_PORT)


def test_the_pod_of_helm_test_reaches_the_gateway_and_dns_and_nothing_reaches_it() -> None:
    given, pod = policies(), of_release("test")
    assert is_allowed(given, pod, GATEWAY, GATEWAY_PORT) and is_allowed(given, pod, OUTSIDE, 53, "UDP")
    closed = ((GATEWAY, 8081), (OPERATOR, OPERATOR_PORT), (ENGINE, contract.DATA_PORT), (API_SERVER, 6443))
    assert not any(is_allowed(given, pod, peer, port) for peer, port in closed)
    assert not any(is_allowed(given, peer, pod, 8080) for peer in (OPERATOR, GATEWAY, PROMETHEUS, STRANGER))


ALL_PORTS = {"dns", "https", "mirror"}


@pytest.mark.parametrize(
    ("uri", "variables", "prefix", "reached"),
    [
        ("pvc://models/m", (), "", set()),
        ("pvc://models/m", ("HF_ENDPOINT",), "", set()),
        ("pvc://models/m", ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",), "", ALL_PORTS),
        ("pvc://models/m", (), "OTEL_", ALL_PORTS),
        ("hf://org/name", (), "", {"dns", "https"}),
        ("s3://bucket/m", (), "", {"dns", "https"}),
        ("hf://org/name", ("HF_ENDPOINT",), "", ALL_PORTS),
        ("s3://bucket/m", ("AWS_ENDPOINT_URL",), "", ALL_PORTS),
        ("hf://org/name", ("https_proxy",), "", ALL_PORTS),
        ("hf://org/name", ("HF_HUB_VERBOSITY",), "", {"dns", "https"}),
        ("s3://bucket/m", (), "AWS_", ALL_PORTS),
        ("s3://bucket/m", (), "APP_", {"dns", "https"}),
    ],
)
def test_an_engine_reaches_its_model_source_and_nothing_else(
    uri: str, variables: tuple[str, ...], prefix: str, reached: set[str]
) -> None:
    given = [engine_policy(peers(), uri, *variables, prefix=prefix)]
    ways = {"dns": (53, "UDP"), "https": (443, "TCP"), "mirror": (8080, "TCP"), "udp": (8080, "UDP")}
    assert {way for way, port in ways.items() if is_allowed(given, ENGINE, OUTSIDE, *port)} == reached
    assert is_allowed(given, ENGINE, COLLECTOR, 4318) is ("mirror" in reached)
    assert not any(is_allowed(given, ENGINE, METADATA, port) for port in (80, 443, 988))


def test_the_policy_selects_the_pods_of_one_resource() -> None:
    given = [engine_policy(peers())]
    assert is_allowed(given, STRANGER, Pod("apps", names.labels("other")), contract.ADMIN_PORT)
    assert is_allowed(given, STRANGER, Pod("other", names.labels("chat")), contract.ADMIN_PORT)


def test_with_the_value_off_there_is_no_policy() -> None:
    assert stored("no_policies", "NetworkPolicy") == []
    assert from_environment(environment("no_policies")).network_peers is None


PEER: Object = {"podSelector": {}}
RIGHT: Object = {
    "admin": [PEER],
    "data": [],
    "namespaceClients": "TLS",
    "egress": {"dns": [], "sources": [PEER], "telemetry": []},
}


def test_peers_are_read_as_the_chart_writes_them() -> None:
    given = from_environment({"SLUICE_NETWORK_PEERS": json.dumps(RIGHT)}).network_peers
    assert given == NetworkPeers((PEER,), (), "TLS", EgressPeers(sources=(PEER,)))
    opened = from_environment({"SLUICE_NETWORK_PEERS": json.dumps(RIGHT | {"egress": None})}).network_peers
    assert opened is not None and opened.egress is None


def test_peers_of_a_chart_before_these_fields_mean_what_they_meant() -> None:
    given = from_environment({"SLUICE_NETWORK_PEERS": json.dumps({"admin": [PEER], "data": []})}).network_peers
    assert given == NetworkPeers((PEER,), (), "Always", EgressPeers())


@pytest.mark.parametrize(
    "wrong",
    ["[]", "no json", '{"admin": []}', *map(json.dumps, (
        RIGHT | {"admin": []},
        RIGHT | {"admin": [{}]},
        RIGHT | {"data": ["x"]},
        RIGHT | {"data": [{"pods": {}}]},
        RIGHT | {"admin": PEER},
        RIGHT | {"namespaceClients": "Auto"},
        RIGHT | {"egress": {"hub": []}},
        RIGHT | {"egress": "open"},
        RIGHT | {"egress": []},
        RIGHT | {"egress": RIGHT["egress"] | {"sources": [{}]}},
        RIGHT | {"egress": RIGHT["egress"] | {"dns": None}},
        RIGHT | {"more": []},
    ))],
)  # fmt: skip
def test_wrong_peers_end_the_start_with_a_sentence(wrong: str) -> None:
    with pytest.raises(InvalidSettings, match=r"SLUICE_NETWORK_PEERS .* it must"):
        from_environment({"SLUICE_NETWORK_PEERS": wrong})


def test_a_policy_is_complete_as_applied() -> None:
    """Server-side apply replaces these lists and the selector as a whole, so a rule added by hand does not stay."""
    spec: dict[str, Any] = engine_policy(peers())["spec"]
    assert set(spec) == {"podSelector", "policyTypes", "ingress", "egress"}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
