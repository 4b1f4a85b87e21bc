"""The PodDisruptionBudget: node drains take one engine at a time, and never wait for ever on a single replica."""

from sluice_operator.api import LLMDeployment
from sluice_operator.render import names
from sluice_operator.world import Object


def build_disruption_budget(resource: LLMDeployment) -> Object:
    """The budget. `maxUnavailable: 1` rather than a minimum: it needs no change when the replicas do, and a lone replica
    can still be moved. Pods that are not ready may always go."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": names.metadata(resource, names.disruption_budget(resource.name)),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": names.selector(resource.name)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
