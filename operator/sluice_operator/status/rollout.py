"""Rollout state of a resource, computed from the Deployment that the API server returned after the operator's write.

A rollout is complete by the rule of `kubectl rollout status` without its check of the replica count: a replica that
autoscaling has just added does not change the spec that the others serve. Pure.
"""

from dataclasses import dataclass

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.pod_status import condition


@dataclass(frozen=True, slots=True)
class Rollout:
    """Progress of the rollout of this generation's pod template."""

    written: bool = False  # the Deployment has this template
    observed: bool = False  # the Deployment controller has observed it: the Deployment's status refers to it
    up_to_date: bool = False  # all pods not being deleted are made from it; at least one is ready
    is_ready: bool = False  # all pods are made from it and ready
    deadline_exceeded: bool = False  # no progress within the Deployment's deadline
    replica_failure: str = ""  # why the ReplicaSet cannot create pods: the API server's message

    @property
    def done(self) -> bool:
        """True if the pods that serve run this generation."""
        return self.written and self.observed and self.up_to_date


def rollout_of(deployment: Object | None, before: Object | None, desired: str | None) -> Rollout:
    """Return the rollout state of the Deployment.

    `before` is the Deployment as read before this pass wrote it, None if the pass wrote nothing. `desired` is the
    fingerprint of the template that this generation asks for, None if it is not compared.
    """
    if deployment is None:
        return Rollout()
    status = deployment.get("status") or {}
    failure, progress = condition(deployment, "ReplicaFailure"), condition(deployment, "Progressing")
    observed = int(status.get("observedGeneration") or 0) >= _generation(deployment, before)
    replicas, updated, ready = (
        int(status.get(count) or 0) for count in ("replicas", "updatedReplicas", "readyReplicas")
    )
    return Rollout(
        written=desired is None or fingerprint_of(deployment) == desired,
        observed=observed,
        up_to_date=observed and 0 < updated == replicas and ready > 0,
        is_ready=observed and 0 < updated == replicas == ready,
        deadline_exceeded=observed and progress.get("reason") == "ProgressDeadlineExceeded",
        replica_failure=str(failure.get("message", "")) if observed and failure.get("status") == "True" else "",
    )


def fingerprint_of(deployment: Object) -> str:
    """Return the template fingerprint in the Deployment's annotations; empty if an older operator wrote it."""
    return str((deployment["metadata"].get("annotations") or {}).get(contract.ANNOTATION_TEMPLATE, ""))


def _generation(deployment: Object, before: Object | None) -> int:
    """The generation to compare with `observedGeneration`. A write that keeps the template (of the count alone) also
    creates a generation; the rollout status observed before it remains valid."""
    same = before is not None and (before.get("spec") or {}).get("template") == deployment["spec"].get("template")
    found = before if before is not None and same else deployment
    return int(found["metadata"].get("generation") or 0)
