"""Builds the ConfigMap with the SLO targets and the admission range, which engines apply even if the operator is down.

It is mounted as a directory that engines reread, so a change reaches them without a rollout and never expires.
"""

import json

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names


def build_targets(resource: LLMDeployment) -> Object:
    """Return the ConfigMap. An engine caps the range at its own limit (`--max-num-seqs`)."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": names.metadata(resource, names.targets(resource.name)),
        "data": {contract.TARGETS_FILE: json.dumps(targets(resource)) + "\n"},
    }


def targets(resource: LLMDeployment) -> Object:
    """Return the content of the file (`contract.TARGET_FIELDS`), times in ms. Mode Off has no range: the engine's own
    limits apply.
    """
    slo, admission = resource.spec.slo, resource.spec.admission
    found: Object = {"itl_target_ms": slo.itl_milliseconds, "ttft_target_ms": slo.ttft_milliseconds}
    if admission.mode != "Off":
        most = admission.concurrency.max
        least = most if admission.mode == "Fixed" else admission.concurrency.min
        found["max_concurrent"] = {"min": least, "max": most}
    return found
