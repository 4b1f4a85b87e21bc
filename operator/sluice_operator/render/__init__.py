"""Children of an LLMDeployment, built by pure functions: one file per kind, plain dicts outward.

Each manifest holds only the fields that Sluice owns, for server-side apply; fields of others survive.
"""

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.render import names
from sluice_operator.render.account import build_service_account
from sluice_operator.render.budget import build_disruption_budget
from sluice_operator.render.deployment import build_deployment
from sluice_operator.render.secret import build_admin_secret
from sluice_operator.render.service import build_headless_service, build_service
from sluice_operator.world import Object

__all__ = ["admin_secret", "children", "deletion_cost", "names"]


def children(resource: LLMDeployment, *, image: str, replicas: int | None) -> tuple[Object, ...]:
    """Every child but the admin Secret, in the order in which they should be applied.

    image: the engine's, where the resource names none. replicas: how many pods; None leaves the count to its owner.
    """
    return (
        build_service_account(resource),
        build_service(resource),
        build_headless_service(resource),
        build_disruption_budget(resource),
        build_deployment(resource, image=resource.spec.engine.image or image, replicas=replicas),
    )


def admin_secret(resource: LLMDeployment, token: str) -> Object:
    """The Secret that holds the admin token: create it, never apply it."""
    return build_admin_secret(resource, token)


def deletion_cost(resource: LLMDeployment, pod_name: str, cost: int) -> Object:
    """A manifest that sets what losing this pod costs: a smaller Deployment loses its cheapest pods first."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name,
            "namespace": resource.namespace,
            "annotations": {contract.ANNOTATION_DELETION_COST: str(cost)},
        },
    }
