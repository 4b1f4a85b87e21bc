"""The writes of the child objects of one resource.

The order is: Secrets of the tokens, children that the pods depend on, deletion costs, Deployment with its replica count. Each
write is complete in itself and the next pass reads the state back. An operator that restarts after any of them
therefore converges to the same state.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sluice_operator import render
from sluice_operator.api import LLMDeployment
from sluice_operator.autoscaler.values import Decision
from sluice_operator.cluster.client import ClusterError, Object
from sluice_operator.cluster.fleet import ObservedFleet, replicas_of
from sluice_operator.reconcile.children.token_secrets import TokenSecrets
from sluice_operator.reconcile.context import Context, Target
from sluice_operator.render import names

log = logging.getLogger(__name__)

_DEFAULT_DELETION_COST: Final = 0


@dataclass(frozen=True, slots=True)
class AppliedChildren:
    """What this process has applied."""

    secrets: TokenSecrets = field(default_factory=TokenSecrets)
    fingerprint: int | None = None  # of the children without the Deployment
    applied_at: float = 0.0  # monotonic seconds; when those were applied
    replicas: int | None = None  # of the Deployment, as last written

    def is_due(self, now: float, interval: float) -> bool:
        """True if the children were not applied for `interval` seconds."""
        return self.fingerprint is None or now - self.applied_at >= interval


def desired_replicas(resource: LLMDeployment, fleet: ObservedFleet, decision: Decision) -> int | None:
    """Return the replica count for the Deployment; None leaves the field to its owner.

    Auto: the autoscaler's count, or the current one if it returns none. External: `spec.replicas`. Off: none, so the
    API server creates the Deployment with one replica. Advise: an initial count when the Deployment does not exist yet,
    None afterwards.
    """
    current, scaling = replicas_of(fleet.deployment), resource.spec.scaling
    if scaling.mode == "Off":
        return None
    if scaling.mode == "External":
        return resource.spec.replicas
    if scaling.mode == "Advise":
        return None if current is not None else decision.desired
    if decision.replicas is not None:
        return decision.replicas
    return current if current is not None else decision.desired


async def apply_dependencies(
    target: Target, manifests: Sequence[Object], state: AppliedChildren, context: Context
) -> AppliedChildren:
    """Apply the children except the Deployment if they changed, and every `children_interval` to undo other writes. That
    needs no request where the watches show none.

    Raises ClusterError, ForeignObject, OwnerDeleted.
    """
    fingerprint, now = hash(json.dumps(manifests, sort_keys=True)), context.clock()
    if fingerprint == state.fingerprint and not state.is_due(now, context.settings.children_interval):
        return state
    for manifest in manifests:
        await context.cluster.apply(manifest, owner=target.document)
    return replace(state, fingerprint=fingerprint, applied_at=now)


async def remove_network_policy(target: Target, context: Context) -> None:
    """Delete the NetworkPolicy that an operator with other settings has applied. Raises ClusterError.

    An operator whose role does not name NetworkPolicies has applied none.
    """
    where = ("NetworkPolicy", target.key.namespace, names.network_policy(target.key.name))
    try:
        live = await context.cluster.child(*where, target.document)
    except ClusterError as error:
        if not error.is_refusal:
            raise
        return
    if live is not None:
        await context.cluster.delete(*where)


async def order_scale_in(
    resource: LLMDeployment, fleet: ObservedFleet, decision: Decision, replicas: int | None, context: Context
) -> None:
    """Write the pod-deletion-cost of the scale-in candidates, if the Deployment's count falls to `replicas`.

    The ReplicaSet controller deletes the lowest cost first, all else being equal. The cost of a pod that stays is reset
    once the scale-in is carried out.
    """
    current = replicas_of(fleet.deployment)
    is_scale_in = replicas is not None and current is not None and replicas < current
    if not is_scale_in and (decision.replicas is None or not _is_carried_out(fleet, decision.replicas)):
        return
    candidates = decision.scale_in_candidates
    costs = {name: place - len(candidates) for place, name in enumerate(candidates)}
    for pod in fleet.pods:
        cost = costs.get(pod.view.name, _DEFAULT_DELETION_COST)
        if pod.view.phase == "draining" or (pod.deletion_cost or _DEFAULT_DELETION_COST) == cost:
            continue
        try:
            await context.cluster.apply(render.deletion_cost(resource, pod.view.name, cost))
        except ClusterError as error:
            if error.status not in (404, 409, 422):  # the pod was deleted in the meantime
                raise


def _is_carried_out(fleet: ObservedFleet, replicas: int) -> bool:
    """True if at most `replicas` pods are not draining; otherwise the controller still uses the costs set before."""
    return sum(pod.view.phase != "draining" for pod in fleet.pods) <= replicas
