"""Builds the Deployment of the engine pods."""

import hashlib
import json

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names


def build_deployment(resource: LLMDeployment, template: Object, replicas: int | None) -> Object:
    """Return the Deployment. If `replicas` is None, the field is omitted, and its current owner keeps it."""
    rollout = resource.spec.rollout
    spec: Object = {
        "selector": {"matchLabels": names.selector(resource.name)},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": rollout.max_surge, "maxUnavailable": rollout.max_unavailable},
        },
        "progressDeadlineSeconds": rollout.progress_deadline_seconds,
        "paused": False,  # `kubectl rollout pause` is undone as every edit; spec.paused of the resource pauses
        "revisionHistoryLimit": 3,
        "template": template,
    }
    if replicas is not None:
        spec["replicas"] = replicas
    metadata = names.metadata(resource, names.deployment(resource.name))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata | {"annotations": {contract.ANNOTATION_TEMPLATE: fingerprint(template)}},
        "spec": spec,
    }


def fingerprint(template: Object) -> str:
    """Return a hash of a rendered pod template, 16 hex digits.

    The API server normalises stored templates, so a rendered template cannot be compared with the stored one.
    """
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:16]
