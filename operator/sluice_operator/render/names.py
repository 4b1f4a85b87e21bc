"""Every name and label of the children, derived from the resource alone: the same today, tomorrow and after a restart."""

from typing import Final

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.api.engine import LABEL_PART_OF
from sluice_operator.world import Object

PART_OF: Final = "sluice"

# Suffixes have at most 11 characters: with the 52 of a resource's name they fit the 63 of a DNS label.
_PEERS: Final = "-engines"
_ACCOUNT: Final = "-engine"
_ADMIN: Final = "-admin"


def deployment(name: str) -> str:
    """The Deployment of the engine pods."""
    return name


def service(name: str) -> str:
    """The Service that clients use."""
    return name


def headless_service(name: str) -> str:
    """The headless Service that lists the ready pods one by one."""
    return f"{name}{_PEERS}"


def service_account(name: str) -> str:
    """The ServiceAccount of the engine pods. It has a suffix so that a resource called `default` takes nobody's."""
    return f"{name}{_ACCOUNT}"


def disruption_budget(name: str) -> str:
    """The PodDisruptionBudget."""
    return name


def admin_secret(name: str) -> str:
    """The Secret that holds the admin token."""
    return f"{name}{_ADMIN}"


def url(namespace: str, name: str) -> str:
    """Where clients inside the cluster send requests, without the /v1."""
    return f"http://{service(name)}.{namespace}.svc:{contract.DATA_PORT}"


def selector(name: str) -> dict[str, str]:
    """The labels that pick the engine pods of one resource; immutable in a Deployment, so never anything else."""
    return {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_INSTANCE: name}


def selector_text(name: str) -> str:
    """The same as one string, for `status.selector`."""
    return ",".join(f"{key}={value}" for key, value in selector(name).items())


def labels(name: str) -> dict[str, str]:
    """The labels of every child."""
    return {
        **selector(name),
        contract.LABEL_MANAGED_BY: contract.MANAGED_BY,
        LABEL_PART_OF: PART_OF,
    }


def metadata(resource: LLMDeployment, name: str) -> Object:
    """Metadata of a child: placed, labelled and owned. Deletion needs no operator: the garbage collector follows the
    owner. A resource that never saw an API server has no uid, and its children no owner."""
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
