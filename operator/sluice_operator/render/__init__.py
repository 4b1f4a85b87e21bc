"""Builds the child objects of an LLMDeployment by pure functions, one file per kind, as plain dicts.

Each manifest contains only the fields that Sluice owns; server-side apply keeps the fields of other managers.
"""

from collections.abc import Mapping

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names
from sluice_operator.render.access.admin_secret import build_admin_secret, build_read_secret, build_sentinel
from sluice_operator.render.access.network_policy import build_network_policy, has_namespace_clients
from sluice_operator.render.access.service_account import build_service_account
from sluice_operator.render.canary import canary_deployment, canary_service, shared, without_pods
from sluice_operator.render.deployment import build_deployment
from sluice_operator.render.disruption_budget import build_disruption_budget
from sluice_operator.render.estimates import build_estimates
from sluice_operator.render.pod import TRITON_CACHE, USER, PodDefaults, build_pod_template
from sluice_operator.render.pod_monitor import build_pod_monitor
from sluice_operator.render.service import build_headless_service, build_service
from sluice_operator.render.targets import build_targets
from sluice_operator.settings import NetworkPeers, PodMonitorSettings

__all__ = [
    "TRITON_CACHE",
    "USER",
    "PodDefaults",
    "admin_secret",
    "canary_deployment",
    "canary_service",
    "children",
    "deletion_cost",
    "estimates",
    "has_namespace_clients",
    "names",
    "network_policy",
    "pod_monitor",
    "pod_template",
    "read_secret",
    "sentinel",
    "shared",
    "without_pods",
]


def children(
    resource: LLMDeployment,
    *,
    defaults: PodDefaults,
    replicas: int | None,
    token: str,
    fetched: Mapping[str, str] | None = None,
) -> tuple[Object, ...]:
    """Return the children that every resource has, in the order in which they must be applied.

    More have functions of their own: the Secrets and their sentinels, NetworkPolicy, PodMonitor and saved estimates.

    defaults: what the operator's settings say for every pod. replicas: the number of pods; None leaves the field to its
    owner. token: the admin token; the pods mount the Secret that holds it. fetched: uri and revision of a model that
    the pods have fetched; None before one has.
    """
    return (
        build_targets(resource, fetched),  # first: engines follow it even if the writes of the others fail
        build_service_account(resource),
        build_service(resource),
        build_headless_service(resource),
        build_disruption_budget(resource),
        build_deployment(resource, build_pod_template(resource, defaults, token), replicas),
    )


def pod_template(resource: LLMDeployment, defaults: PodDefaults, token: str) -> Object:
    """Return the pod template alone, as `children` puts it into the Deployment."""
    return build_pod_template(resource, defaults, token)


def admin_secret(resource: LLMDeployment, token: str) -> Object:
    """Return the Secret that holds the admin token. The caller creates it and never applies it."""
    return build_admin_secret(resource, token)


def read_secret(resource: LLMDeployment, token: str, read_token: str) -> Object:
    """Return the Secret that holds the token of reads, beside that of the admin `token`. It is created as that one is."""
    return build_read_secret(resource, token, read_token)


def sentinel(resource: LLMDeployment, secret: Object) -> Object:
    """Return the ConfigMap that is deleted with this live Secret, so that a watch shows it."""
    return build_sentinel(resource, secret)


def network_policy(resource: LLMDeployment, peers: NetworkPeers) -> Object:
    """Return the NetworkPolicy of the engine pods, which must exist before them."""
    return build_network_policy(resource, peers)


def pod_monitor(resource: LLMDeployment, settings: PodMonitorSettings, read_secret: str = "") -> Object:
    """Return the PodMonitor of the engine pods. Only clusters with the Prometheus Operator have the kind.

    read_secret: name of the Secret of the token of reads; empty: Prometheus sends none.
    """
    return build_pod_monitor(resource, settings, read_secret)


def estimates(resource: LLMDeployment, text: str, canary: str = "") -> Object:
    """Return the ConfigMap that keeps the autoscaler's estimates and the state of a canary over a restart of the
    operator."""
    return build_estimates(resource, text, canary)


def deletion_cost(resource: LLMDeployment, pod_name: str, cost: int) -> Object:
    """Return a manifest that sets the deletion cost of a pod. At scale-in, pods with the lowest cost are deleted
    first."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name,
            "namespace": resource.namespace,
            "annotations": {contract.ANNOTATION_DELETION_COST: str(cost)},
        },
    }
