"""Builds the ConfigMap with the SLO targets and the admission range, which engines apply even if the operator is down.

It is mounted as a directory that engines reread, so a change reaches them without a rollout and never expires. For the
same reason it holds the revision of a fetched model: a flag of the pods would restart those that have fetched it.
"""

import json
from collections.abc import Mapping

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names


def build_targets(resource: LLMDeployment, fetched: Mapping[str, str] | None = None) -> Object:
    """Return the ConfigMap. An engine caps the range at its own limit (`--max-num-seqs`).

    fetched: uri and revision of the model that the first ready pod has fetched.
    """
    data = {contract.TARGETS_FILE: json.dumps(targets(resource)) + "\n"}
    if fetched is not None:
        data[contract.REVISION_FILE] = json.dumps(dict(fetched)) + "\n"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": names.metadata(resource, names.targets(resource.name)),
        "data": data,
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
