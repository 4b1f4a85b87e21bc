"""Changes of the Deployment's replica count that this operator did not record: an external writer, or a lost response."""

import math
from dataclasses import dataclass
from typing import Final

from sluice import contract
from sluice_operator.autoscaler.explain import replicas as explain
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Reason
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.fleet import replicas_of
from sluice_operator.reconcile.context import Target
from sluice_operator.status.decisions import last_replicas

REPORTED_SECONDS: Final = 600.0  # for which the conditions name an external writer after its last write


@dataclass(frozen=True, slots=True)
class ExternalWriter:
    """The newest write of the replica count by an external writer."""

    noticed_at: float = -math.inf  # monotonic seconds
    sentence: str = ""

    def after(self, change: Reason | None, now: float) -> "ExternalWriter":
        """Return the state after a pass that found `change`."""
        if change is None or change.binding != explain.OTHER_WRITER:
            return self
        return ExternalWriter(now, change.sentence)

    def message(self, now: float) -> str:
        """Return the sentence about the external writer for REPORTED_SECONDS, then an empty string."""
        return self.sentence if now - self.noticed_at <= REPORTED_SECONDS else ""


def replicas_change(target: Target, deployment: Object | None, written: int | None) -> Reason | None:
    """Return why the Deployment's count differs from the last one that this operator recorded.

    None if it does not differ, or if the operator does not own it. `written`: the count that this process last wrote;
    None: use the status. Besides an external writer, a restart or a lost response leaves an own write unrecorded.
    """
    current = replicas_of(deployment)
    if target.resource.spec.scaling.mode != "Auto" or deployment is None or current is None:
        return None
    before = written if written is not None else last_replicas(target.document.get("status") or {})
    if before is None or before == current:
        return None
    writer = replicas_manager(deployment)
    if writer in ("", contract.FIELD_MANAGER):
        return explain.unrecorded_write(before, current)
    return explain.external_write(before, current, writer)


def state_after(change: Reason, state: AutoscalerState, now: float) -> AutoscalerState:
    """Return the autoscaler's state after such a change, which is reported once.

    A scale-down by this operator still starts the cooldown if its response was lost.
    """
    lowered = change.binding != explain.OTHER_WRITER and change.after < change.before
    return state.after_unplanned_change(now if lowered else None)


def replicas_manager(deployment: Object) -> str:
    """Return the field manager of the Deployment's replicas according to `managedFields`; empty if there is none.

    Several managers may own the field with the same value; then a manager other than this operator is returned.
    """
    owners = [
        str(entry.get("manager", ""))
        for entry in deployment.get("metadata", {}).get("managedFields") or ()
        if "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {}) and entry.get("subresource") != "status"
    ]
    return next((owner for owner in owners if owner != contract.FIELD_MANAGER), owners[0] if owners else "")
