"""Builds the ConfigMap of the autoscaler's estimates, from which a restarted operator continues.

They are no status: no user reads them, and nothing is lost but minutes of learning when the ConfigMap is deleted.
"""

from typing import Final

from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names

ESTIMATES_KEY: Final = "estimates.json"


def build_estimates(resource: LLMDeployment, text: str) -> Object:
    """Return the ConfigMap with this text as its only entry. The caller bounds the text."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": names.metadata(resource, names.estimates(resource.name)),
        "data": {ESTIMATES_KEY: text},
    }
