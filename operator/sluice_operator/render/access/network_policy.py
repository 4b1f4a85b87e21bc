"""Builds the NetworkPolicy of the engine pods: who may reach each port, and whether the pods may reach anything.

Data port: pods of the resource's namespace, because applications use its Service without a gateway, and the chart's
peers (the gateway, `networkPolicy.clientsFrom`). Admin port: operator, gateway and Prometheus only.

Egress: none for a model on a volume. A model that is fetched opens DNS and HTTPS for as long as the resource exists:
one policy covers all its pods, and a new replica may fetch while the others serve. Probes need no rule, because the
kubelet of a pod's own node may always connect.
"""

from typing import Final

from sluice import contract, tracing
from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names
from sluice_operator.render.model_source import is_remote
from sluice_operator.settings import NetworkPeers

_DNS: Final = ({"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"})
_HTTPS: Final = {"port": 443, "protocol": "TCP"}
_ANY_TCP: Final = {"protocol": "TCP"}
_OWN_SOURCE: Final = frozenset(
    {contract.ENV_HUB_ENDPOINT, "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"}
)


def build_network_policy(resource: LLMDeployment, peers: NetworkPeers) -> Object:
    """Return the NetworkPolicy. It has no effect where the cluster's network plugin enforces none."""
    own_namespace: Object = {"podSelector": {}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata(resource, names.network_policy(resource.name)),
        "spec": {
            "podSelector": {"matchLabels": names.selector(resource.name)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"from": [own_namespace, *peers.data], "ports": [{"port": contract.DATA_PORT, "protocol": "TCP"}]},
                {"from": list(peers.admin), "ports": [{"port": contract.ADMIN_PORT, "protocol": "TCP"}]},
            ],
            "egress": _egress(resource),
        },
    }


def _egress(resource: LLMDeployment) -> list[Object]:
    """Return the egress rules. The address of a model source is a name, and a NetworkPolicy has ports and IP ranges only.

    A mirror or proxy may be a Service, whose port the cluster translates to another one, so it opens every TCP port.
    """
    variables = {variable.name.upper() for variable in resource.spec.engine.template.env}
    if variables & frozenset(tracing.ENDPOINTS):  # a collector is a Service, too
        return [{"ports": [*_DNS, _ANY_TCP]}]
    if not is_remote(resource.spec.model):
        return []
    return [{"ports": [*_DNS, _ANY_TCP if variables & _OWN_SOURCE else _HTTPS]}]
