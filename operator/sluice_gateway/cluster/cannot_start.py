"""Why a model can get no replica, from the status that the operator writes: such a model's requests are not held."""

from collections.abc import Mapping
from typing import Any, Final

from sluice import contract

# What the operator finds without a pod. A new pod changes nothing.
OF_SPEC: Final = frozenset({"InvalidSpec", "Conflict", "WriteRefused", "PodsRefused", "NoReplicas", "Paused"})
# What a pod has met. A model at zero replicas is started again, because the next pod may not meet it.
OF_POD: Final = frozenset(
    {
        *contract.CONFIG_REASONS,
        contract.REASON_ENGINE_CRASHED,
        contract.REASON_MODEL_ACCESS_DENIED,
        contract.REASON_REVISION_NOT_FOUND,
        contract.REASON_DISK_FULL,
        "ImagePullFailed",
        "Unschedulable",
    }
)
# Seconds for which a reason must last: a cluster autoscaler brings a node with a GPU in two to five minutes.
PATIENCE: Final[Mapping[str, float]] = {"Unschedulable": 300.0}


def cannot_start(document: Mapping[str, Any]) -> str:
    """The reason, one CamelCase word; "" for a model that serves or may start, and while the status is of an older spec."""
    status = document.get("status") or {}
    conditions = {str(each.get("type")): each for each in status.get("conditions") or ()}
    ready, available = conditions.get("Ready", {}), conditions.get("Available", {})
    current = ready.get("observedGeneration") == document["metadata"].get("generation")
    if not current or ready.get("status") != "False" or available.get("status") == "True":
        return ""
    reason, checked = str(ready.get("reason", "")), str(available.get("reason", ""))
    if checked not in ("", "NoReadyReplica"):  # the operator has checked the model, and starts no pod for it
        return checked
    found = reason in OF_SPEC or (reason in OF_POD and bool(status.get("replicas")))
    return reason if found else ""
