"""The evaluator against the statements of the Kubernetes documentation on NetworkPolicies."""

from typing import Any

import pytest

from tests.operator.security.policy_evaluator import Pod, is_allowed

WEB = Pod("shop", {"app": "web"}, "10.0.0.1")
DATABASE = Pod("shop", {"app": "db"}, "10.0.0.2")
STRANGER = Pod("other", {"app": "web"}, "10.0.1.1", {"team": "red"})
OUTSIDE = Pod(address="172.17.1.5")


def policy(*types: str, **rules: Any) -> dict[str, Any]:
    spec = {"podSelector": {"matchLabels": {"app": "db"}}, **({"policyTypes": list(types)} if types else {}), **rules}
    return {"metadata": {"namespace": "shop"}, "spec": spec}


def test_without_a_policy_everything_is_allowed() -> None:
    assert is_allowed([], STRANGER, DATABASE, 5432)


def test_a_pod_that_no_policy_selects_is_open() -> None:
    assert is_allowed([policy("Ingress")], STRANGER, WEB, 80)


def test_no_rule_allows_nothing_and_an_empty_rule_everything() -> None:
    assert not is_allowed([policy("Ingress")], WEB, DATABASE, 5432)
    assert not is_allowed([policy("Ingress", ingress=[])], WEB, DATABASE, 5432)
    assert is_allowed([policy("Ingress", ingress=[{}])], OUTSIDE, DATABASE, 5432)
    assert is_allowed([policy("Ingress", ingress=[{"from": []}])], OUTSIDE, DATABASE, 5432)  # empty: all sources


def test_policies_add_up() -> None:
    assert is_allowed([policy("Ingress"), policy("Ingress", ingress=[{}])], WEB, DATABASE, 5432)


def test_policy_types_default_to_ingress_and_to_egress_where_it_has_rules() -> None:
    assert is_allowed([policy()], DATABASE, WEB, 80)
    assert not is_allowed([policy(egress=[])], DATABASE, WEB, 80)


def test_egress_of_the_source_and_ingress_of_the_destination_must_both_allow() -> None:
    assert not is_allowed([policy("Egress")], DATABASE, WEB, 80)
    only_dns = policy("Egress", egress=[{"ports": [{"port": 53, "protocol": "UDP"}]}])
    assert is_allowed([only_dns], DATABASE, OUTSIDE, 53, "UDP")
    assert not is_allowed([only_dns], DATABASE, OUTSIDE, 53, "TCP")
    assert is_allowed([policy("Egress")], WEB, DATABASE, 5432)  # answers belong to the connection


@pytest.mark.parametrize(
    ("peer", "web", "stranger", "outside"),
    [
        ({"podSelector": {}}, True, False, False),
        ({"podSelector": {"matchLabels": {"app": "api"}}}, False, False, False),
        ({"namespaceSelector": {}}, True, True, False),
        ({"namespaceSelector": {"matchLabels": {"team": "red"}}}, False, True, False),
        ({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "api"}}}, False, False, False),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}, True, False, False),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}}, True, False, False),
        ({"ipBlock": {"cidr": "172.17.0.0/16"}}, False, False, True),
        ({"ipBlock": {"cidr": "172.17.0.0/16", "except": ["172.17.1.0/24"]}}, False, False, False),
    ],
    ids=str,
)  # fmt: skip
def test_peers(peer: dict[str, Any], web: bool, stranger: bool, outside: bool) -> None:
    given = [policy("Ingress", ingress=[{"from": [peer]}])]
    assert [is_allowed(given, each, DATABASE, 5432) for each in (WEB, STRANGER, OUTSIDE)] == [web, stranger, outside]


@pytest.mark.parametrize(("port", "allowed"), [(79, False), (80, True), (90, True), (91, False)])
def test_a_range_of_ports(port: int, allowed: bool) -> None:
    given = [policy("Ingress", ingress=[{"ports": [{"port": 80, "endPort": 90}]}])]
    assert is_allowed(given, WEB, DATABASE, port) is allowed


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not know"):
        is_allowed([policy("Ingress", ingress=[{"form": []}])], WEB, DATABASE, 80)
