"""A reference evaluator of NetworkPolicies: whether a connection between two pods is allowed.

It follows the API reference of networking.k8s.io/v1: a pod that no policy of a direction selects accepts everything in
that direction; otherwise one rule of one policy must allow it. A connection needs the egress of its source and the
ingress of its destination. An unknown field is an error, so that no rule is read as wider than it is.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Object = dict[str, Any]
Direction = Literal["Ingress", "Egress"]


@dataclass(frozen=True, slots=True)
class Pod:
    """One end of a connection; a host outside the cluster has an address and no namespace."""

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = "10.0.0.1"
    namespace_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_namespace_labels(self) -> dict[str, str]:
        """With the label that the API server gives every namespace."""
        return {**self.namespace_labels, "kubernetes.io/metadata.name": self.namespace}


def is_allowed(policies: Iterable[Object], source: Pod, destination: Pod, port: int, protocol: str = "TCP") -> bool:
    """True if `source` may connect to this port of `destination`."""
    policies = list(policies)
    return _passes(policies, "Egress", source, destination, (port, protocol)) and _passes(
        policies, "Ingress", destination, source, (port, protocol)
    )


def _passes(policies: list[Object], direction: Direction, pod: Pod, peer: Pod, port: tuple[int, str]) -> bool:
    selecting = [each for each in policies if _selects(each, direction, pod)]
    rules = [
        (rule, each["metadata"]["namespace"])
        for each in selecting
        for rule in each["spec"].get(direction.lower()) or ()
    ]
    return not selecting or any(_rule_allows(rule, direction, namespace, peer, port) for rule, namespace in rules)


def _selects(policy: Object, direction: Direction, pod: Pod) -> bool:
    spec = policy["spec"]
    _only(spec, {"podSelector", "policyTypes", "ingress", "egress"})
    types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
    is_here = policy["metadata"]["namespace"] == pod.namespace
    return direction in types and is_here and _matches(spec["podSelector"], pod.labels)


def _rule_allows(rule: Object, direction: Direction, namespace: str, peer: Pod, port: tuple[int, str]) -> bool:
    key = "from" if direction == "Ingress" else "to"
    _only(rule, {key, "ports"})
    peers, ports = rule.get(key) or [{}], rule.get("ports") or [{}]  # an empty or missing list means all
    return any(_is_peer(each, namespace, peer) for each in peers) and any(_is_port(each, *port) for each in ports)


def _is_port(allowed: Object, port: int, protocol: str) -> bool:
    _only(allowed, {"port", "endPort", "protocol"})
    if not allowed:
        return True
    first = int(allowed.get("port", 0))
    last = int(allowed.get("endPort", first)) if "port" in allowed else 65535
    return allowed.get("protocol", "TCP") == protocol and first <= port <= last


def _is_peer(allowed: Object, namespace: str, peer: Pod) -> bool:
    _only(allowed, {"podSelector", "namespaceSelector", "ipBlock"})
    if not allowed:
        return True
    if "ipBlock" in allowed:
        block, address = allowed["ipBlock"], ipaddress.ip_address(peer.address)
        inside = address in ipaddress.ip_network(block["cidr"])
        return inside and not any(address in ipaddress.ip_network(each) for each in block.get("except") or ())
    if not peer.namespace:
        return False
    there = (
        _matches(allowed["namespaceSelector"], peer.all_namespace_labels)
        if "namespaceSelector" in allowed
        else peer.namespace == namespace
    )
    return there and _matches(allowed.get("podSelector", {}), peer.labels)


def _matches(selector: Object, labels: Mapping[str, str]) -> bool:
    _only(selector, {"matchLabels", "matchExpressions"})
    exact = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return exact and all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case other:
            raise ValueError(f"operator {other} is not one of In, NotIn, Exists, DoesNotExist")


def _only(thing: Object, known: set[str]) -> None:
    if unknown := set(thing) - known:
        raise ValueError(f"the evaluator does not know {sorted(unknown)}")
