"""Builds the PodDisruptionBudget: node drains evict one engine at a time, and a single replica never blocks a drain."""

from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names


def build_disruption_budget(resource: LLMDeployment) -> Object:
    """Return the PodDisruptionBudget.

    `maxUnavailable: 1` is independent of the number of replicas, unlike `minAvailable`, and allows the eviction of a
    single replica. Pods that are not ready can always be evicted.
    """
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
