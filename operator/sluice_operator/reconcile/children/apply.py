"""The writes of the child objects of one resource.

The order is: admin token, children that the pods depend on, deletion costs, Deployment with its replica count. Each
write is complete in itself and the next pass reads the state back. An operator that restarts after any of them
therefore converges to the same state.
"""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sluice.auth.read_tokens import read_key, read_token
from sluice_operator import render
from sluice_operator.api import LLMDeployment
from sluice_operator.autoscaler.values import Decision
from sluice_operator.cluster.client import ClusterError, Object, is_owned
from sluice_operator.cluster.fleet import ObservedFleet, replicas_of
from sluice_operator.reconcile.children.admin_token import derive
from sluice_operator.reconcile.context import Context, Target
from sluice_operator.render import names

log = logging.getLogger(__name__)

REJECTED: Final = (400, 403, 422)  # HTTP status of a write rejected by RBAC, quota or policy: only a user can fix it
_DEFAULT_DELETION_COST: Final = 0


@dataclass(frozen=True, slots=True)
class AppliedChildren:
    """What this process has applied."""

    token: str | None = None  # the engines' admin token, set after its Secret was created
    fingerprint: int | None = None  # of the children without the Deployment
    applied_at: float = 0.0  # monotonic seconds; when those were applied
    unwatched_at: float = -math.inf  # the same for the kinds that are not watched, the Secret among them
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


async def ensure_token(
    target: Target, fleet: ObservedFleet, state: AppliedChildren, context: Context, *, interval: float
) -> AppliedChildren:
    """Create the Secret of the admin token, and of the token of reads where those need one, if they do not exist; also
    those of an earlier key that the Deployment still mounts.

    The creation is repeated every `interval` seconds, because the operator does not read the Secrets. A quota may reject
    the creation of a Secret that exists; the error is ignored if the Deployment mounts that Secret. Raises ClusterError,
    OwnerDeleted.
    """
    if state.token is not None and not _due(("Secret",), state, context, interval):
        return state
    uid = str(target.resource.metadata.get("uid", ""))
    for secret in _secrets(target, fleet, context):
        try:
            await context.cluster.create(secret, owner=target.document)
        except ClusterError as error:
            name = secret["metadata"]["name"]
            if error.status not in REJECTED or not _mounts(fleet.deployment, name):
                raise
            log.info("Secret %s/%s exists and its creation was rejected: %s", target.key.namespace, name, error)
    return replace(state, token=derive(context.token_key, uid))


def _secrets(target: Target, fleet: ObservedFleet, context: Context) -> list[Object]:
    """Those of the operator's key, and of each earlier one whose admin Secret the Deployment mounts."""
    resource, uid = target.resource, str(target.resource.metadata.get("uid", ""))
    found = []
    for key in (context.token_key, *context.old_keys):
        token = derive(key, uid)
        if key != context.token_key and not _mounts(fleet.deployment, names.admin_secret(resource.name, token)):
            continue
        found.append(render.admin_secret(resource, token))
        if context.settings.metrics_auth == "token":
            found.append(render.read_secret(resource, token, read_token(read_key(key), uid)))
    return found


def _mounts(deployment: Object | None, secret: str) -> bool:
    template = (deployment or {}).get("spec", {}).get("template", {}).get("spec", {})
    return any((volume.get("secret") or {}).get("secretName") == secret for volume in template.get("volumes") or ())


async def apply_dependencies(
    target: Target, manifests: Sequence[Object], state: AppliedChildren, context: Context, *, interval: float
) -> AppliedChildren:
    """Apply the children except the Deployment if they changed, and again to undo other writes: every
    `children_interval` where that needs no request, those without a watch every `interval` seconds.

    Raises ClusterError, ForeignObject, OwnerDeleted.
    """
    fingerprint, now = hash(json.dumps(manifests, sort_keys=True)), context.clock()
    changed = fingerprint != state.fingerprint
    unwatched = changed or _due(("ConfigMap", "Secret"), state, context, interval)
    watched = changed or state.is_due(now, context.settings.children_interval)
    for manifest in manifests:
        if watched if context.cluster.is_watched(manifest["kind"]) else unwatched:
            await context.cluster.apply(manifest, owner=target.document)
    return replace(
        state,
        fingerprint=fingerprint,
        applied_at=now if watched else state.applied_at,
        unwatched_at=now if unwatched else state.unwatched_at,
    )


def _due(kinds: Sequence[str], state: AppliedChildren, context: Context, interval: float) -> bool:
    """True if children of these kinds are applied although they did not change."""
    now = context.clock()
    if all(context.cluster.is_watched(kind) for kind in kinds):
        return state.is_due(now, context.settings.children_interval)
    return now - state.unwatched_at >= interval


async def remove_network_policy(target: Target, context: Context) -> None:
    """Delete the NetworkPolicy that an operator with other settings has applied. Raises ClusterError.

    An operator whose role does not name NetworkPolicies has applied none.
    """
    where = ("NetworkPolicy", target.key.namespace, names.network_policy(target.key.name))
    try:
        live = await context.cluster.get(*where)
    except ClusterError as error:
        if error.status not in REJECTED:
            raise
        return
    if live is not None and is_owned(live, target.document):
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
