"""Builds the children of a canary revision, and the stable Deployment beside them.

Its pods have the labels of all engine pods, so that Services and budgets include them, and one label of their own.
"""

from typing import Final

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names
from sluice_operator.render.service import headless_service

_MARK: Final = {contract.LABEL_REVISION: contract.REVISION_CANARY}


def canary_service(resource: LLMDeployment, weight_percent: int) -> Object:
    """Return the headless Service of the canary's pods. Its EndpointSlices tell gateways which pods they are, and the
    weight, by the labels that Kubernetes copies to them."""
    service = headless_service(resource, names.canary(resource.name), {**names.selector(resource.name), **_MARK})
    labels = {**service["metadata"]["labels"], **_MARK, contract.LABEL_WEIGHT: str(weight_percent)}
    return {**service, "metadata": {**service["metadata"], "labels": labels}}


def canary_deployment(deployment: Object, resource: LLMDeployment, replicas: int) -> Object:
    """Return the Deployment of the canary: the rendered `deployment` of the resource under another name, whose pods have
    the label of a canary and say which pod template they are made from."""
    template = deployment["spec"]["template"]
    metadata, spec = deployment["metadata"], deployment["spec"]
    revision = {contract.ANNOTATION_TEMPLATE: metadata["annotations"][contract.ANNOTATION_TEMPLATE]}
    marked = {
        "labels": {**template["metadata"]["labels"], **_MARK},
        "annotations": {**template["metadata"].get("annotations", {}), **revision},
    }
    return {
        **deployment,
        "metadata": {
            **metadata,
            "name": names.canary(resource.name),
            "labels": {**metadata["labels"], **_MARK},
            "annotations": revision,
        },
        "spec": {
            **spec,
            "replicas": replicas,
            "selector": {"matchLabels": {**names.selector(resource.name), **_MARK}},
            "template": {**template, "metadata": {**template["metadata"], **marked}},
        },
    }


def without_pods(canary: Object) -> Object:
    """Return the `canary`'s Deployment as it is in the cluster, for no replica: its template stays that of its pods."""
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")  # an apply removes what it leaves out
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {name: value for name, value in canary["metadata"].items() if name in kept},
        "spec": {**canary["spec"], "replicas": 0},
    }


def shared(deployment: Object, replicas: int, stable: int) -> Object:
    """Return the Deployment with `stable` of the `replicas` that it shares with the canary, of which it keeps a note."""
    annotations = {**deployment["metadata"]["annotations"], contract.ANNOTATION_SHARED: f"{replicas}/{stable}"}
    metadata = {**deployment["metadata"], "annotations": annotations}
    return {**deployment, "metadata": metadata, "spec": {**deployment["spec"], "replicas": stable}}
