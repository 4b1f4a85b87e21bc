"""Builds the ConfigMap from which a restarted operator continues: the autoscaler's estimates, and the state of a canary.

They are no status: no user reads them. When the ConfigMap is deleted, minutes of learning are lost, and a canary begins
again at its first step.
"""

from typing import Final

from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names

ESTIMATES_KEY: Final = "estimates.json"
CANARY_KEY: Final = "canary.json"


def build_estimates(resource: LLMDeployment, text: str, canary: str = "") -> Object:
    """Return the ConfigMap with these texts, without an empty one of the canary. The caller bounds them."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": names.metadata(resource, names.estimates(resource.name)),
        "data": {ESTIMATES_KEY: text} | ({CANARY_KEY: canary} if canary else {}),
    }
