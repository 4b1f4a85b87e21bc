"""Defines the names and labels of all children. They depend only on the resource, so they are stable over restarts."""

import hashlib
from typing import Final

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.api.template import LABEL_PART_OF
from sluice_operator.cluster.client import Object

PART_OF: Final = "sluice"
CONTAINER: Final = "engine"  # in the pod; webhooks may add more containers

# Suffixes, with that of the headless Service, have at most 11 characters: with the 52 of a resource's name they fit the 63 of a DNS label.
_ENGINE: Final = "-engine"  # of the ServiceAccount, the NetworkPolicy and the PodMonitor
_TARGETS: Final = "-targets"
_ESTIMATES: Final = "-estimates"
_DIGITS: Final = 10  # hex digits of the hash in the name of the admin Secret


def deployment(name: str) -> str:
    """Return the name of the Deployment of the engine pods."""
    return name


def service(name: str) -> str:
    """Return the name of the Service for clients."""
    return name


def headless_service(name: str) -> str:
    """Return the name of the headless Service, which resolves to the ready pods."""
    return f"{name}{contract.HEADLESS_SUFFIX}"


def canary(name: str) -> str:
    """Return the name of the Deployment and the headless Service of a canary revision."""
    return f"{name}{contract.CANARY_SUFFIX}"


def service_account(name: str) -> str:
    """Return the name of the ServiceAccount of the engine pods.

    The suffix prevents a conflict of a resource named `default` with the namespace's default ServiceAccount.
    """
    return f"{name}{_ENGINE}"


def disruption_budget(name: str) -> str:
    """Return the name of the PodDisruptionBudget."""
    return name


def network_policy(name: str) -> str:
    """Return the name of the NetworkPolicy. Users name theirs after the model, so it has a suffix."""
    return f"{name}{_ENGINE}"


def pod_monitor(name: str) -> str:
    """Return the name of the PodMonitor. Users name theirs after the model, so it has a suffix."""
    return f"{name}{_ENGINE}"


def admin_secret(name: str, token: str) -> str:
    """Return the name of the Secret that holds the admin token.

    The operator cannot read Secrets in the namespaces of models, so the name must prove the content: it contains a hash
    of the token, and a client without the token cannot create a Secret of that name in advance.
    """
    return f"{name}-{hashlib.sha256(token.encode()).hexdigest()[:_DIGITS]}"


def read_secret(admin_secret: str) -> str:
    """Return the name of the Secret that holds the token of reads, beside the admin Secret of this name.

    Both tokens derive from one key, so the hash in the name proves this content too.
    """
    return f"{admin_secret}-read"


def targets(name: str) -> str:
    """Return the name of the ConfigMap that holds the engines' targets."""
    return f"{name}{_TARGETS}"


def estimates(name: str) -> str:
    """Return the name of the ConfigMap that holds the autoscaler's estimates."""
    return f"{name}{_ESTIMATES}"


def url(namespace: str, name: str, scheme: str = "http") -> str:
    """Return the URL for clients inside the cluster, without the /v1."""
    return f"{scheme}://{service(name)}.{namespace}.svc:{contract.DATA_PORT}"


def selector(name: str) -> dict[str, str]:
    """Return the labels that select the engine pods of one resource. They never change: a Deployment's selector is
    immutable."""
    return {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_INSTANCE: name}


def selector_text(name: str) -> str:
    """Return the selector as one string, for `status.selector`."""
    return ",".join(f"{key}={value}" for key, value in selector(name).items())


def labels(name: str) -> dict[str, str]:
    """Return the labels of every child."""
    return {
        **selector(name),
        contract.LABEL_MANAGED_BY: contract.MANAGED_BY,
        LABEL_PART_OF: PART_OF,
    }


def metadata(resource: LLMDeployment, name: str) -> Object:
    """Return the metadata of a child: name, namespace, labels and owner reference.

    The garbage collector deletes children with their owner, so deletion needs no operator. A resource that was not read
    from an API server has no uid, and its children have no owner reference.
    """
    owned: Object = {
        "name": name,
        "namespace": resource.namespace,
        "labels": labels(resource.name),
    }
    if uid := resource.metadata.get("uid"):
        owned["ownerReferences"] = [
            {
                "apiVersion": contract.API_VERSION,
                "kind": contract.KIND,
                "name": resource.name,
                "uid": uid,
                "controller": True,
            }
        ]
    return owned
