"""Builds the NetworkPolicy of the engine pods: who may reach each port, and what the pods may reach.

Data port: the chart's peers (the gateway, `networkPolicy.clientsFrom`), and pods of the resource's namespace where
`networkPolicy.namespaceClients` says so. Admin port: operator, gateway and Prometheus only.

Egress: none for a model on a volume. A model that is fetched opens DNS and HTTPS for as long as the resource exists:
one policy covers all its pods, and a new replica may fetch while the others serve. Probes need no rule, because the
kubelet of a pod's own node may always connect.
"""

from typing import Final

from sluice import contract, tracing
from sluice_operator.api import LLMDeployment, Template
from sluice_operator.cluster.client import Object
from sluice_operator.render import names
from sluice_operator.render.model_source import is_remote
from sluice_operator.settings import EgressPeers, NetworkPeers, Peers

# The second port is that of OpenShift's DNS pods, to which port 53 of their Service is translated.
_DNS: Final = tuple({"port": port, "protocol": protocol} for port in (53, 5353) for protocol in ("UDP", "TCP"))
_HTTPS: Final = {"port": 443, "protocol": "TCP"}
_ANY_TCP: Final = {"protocol": "TCP"}
# Clouds serve credentials of the node at link-local addresses. An ipBlock covers pods in some network plugins only.
_ANYWHERE: Final[Peers] = (
    {"namespaceSelector": {}},
    {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}},
    {"ipBlock": {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::254/128"]}},
)
_OWN_SOURCE: Final = frozenset(
    {contract.ENV_HUB_ENDPOINT, "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"}
)


def build_network_policy(resource: LLMDeployment, peers: NetworkPeers) -> Object:
    """Return the NetworkPolicy. It has no effect where the cluster's network plugin enforces none."""
    clients = [*([{"podSelector": {}}] if has_namespace_clients(resource, peers) else []), *peers.data]
    # A rule without peers would admit everyone.
    data = [{"from": clients, "ports": [{"port": contract.DATA_PORT, "protocol": "TCP"}]}] if clients else []
    admin = {"from": list(peers.admin), "ports": [{"port": contract.ADMIN_PORT, "protocol": "TCP"}]}
    spec: Object = {
        "podSelector": {"matchLabels": names.selector(resource.name)},
        "policyTypes": ["Ingress"],
        "ingress": [*data, admin],
    }
    if peers.egress is not None:
        spec |= {"policyTypes": ["Ingress", "Egress"], "egress": _egress(resource, peers.egress)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata(resource, names.network_policy(resource.name)),
        "spec": spec,
    }


def has_namespace_clients(resource: LLMDeployment, peers: NetworkPeers) -> bool:
    """Return whether pods of the own namespace are clients. A model with a certificate has no others: the gateway does not
    speak TLS to engines."""
    has_certificate = resource.spec.auth.tls_secret_ref is not None
    return peers.namespace_clients == "Always" or (peers.namespace_clients == "TLS" and has_certificate)


def _egress(resource: LLMDeployment, peers: EgressPeers) -> list[Object]:
    """Return the egress rules. The address of a model source is a name, and a NetworkPolicy has ports and IP ranges only.

    A mirror, proxy or collector may be a Service, whose port the cluster translates, so it opens every TCP port.
    """
    template = resource.spec.engine.template
    rules: list[Object] = []
    if is_remote(resource.spec.model):
        is_named = bool(peers.sources) or _may_set(template, _OWN_SOURCE)
        rules.append({"to": list(peers.sources or _ANYWHERE), "ports": [_ANY_TCP if is_named else _HTTPS]})
    if _may_set(template, frozenset(tracing.ENDPOINTS)):
        rules.append({"to": list(peers.telemetry or _ANYWHERE), "ports": [_ANY_TCP]})
    if not rules:
        return []
    return [{**({"to": list(peers.dns)} if peers.dns else {}), "ports": list(_DNS)}, *rules]


def _may_set(template: Template, variables: frozenset[str]) -> bool:
    """Return whether the overlay sets one of these variables, or takes entries of a Secret that may have its name."""
    named = {each.name.upper() for each in template.env} & variables
    return bool(named) or any(
        each.startswith(source.prefix.upper()) for source in template.env_from for each in variables
    )
