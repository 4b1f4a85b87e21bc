"""The Deployment that keeps the engine pods."""

from typing import Final

from sluice_operator.api import LLMDeployment
from sluice_operator.render import names
from sluice_operator.render.pod import build_pod_template
from sluice_operator.world import Object

_PROGRESS_SECONDS: Final = 600  # no new pod ready for this long: the rollout counts as stalled


def build_deployment(resource: LLMDeployment, *, image: str, replicas: int | None) -> Object:
    """The Deployment. `replicas` None leaves the field out: whoever else owns the count keeps it."""
    rollout = resource.spec.rollout
    spec: Object = {
        "selector": {"matchLabels": names.selector(resource.name)},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": rollout.max_surge, "maxUnavailable": rollout.max_unavailable},
        },
        "progressDeadlineSeconds": _PROGRESS_SECONDS,
        "revisionHistoryLimit": 3,
        "template": build_pod_template(resource, image),
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": names.metadata(resource, names.deployment(resource.name)),
        "spec": spec,
    }
