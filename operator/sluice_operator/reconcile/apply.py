"""The writes of one reconcile pass, in an order that is safe to interrupt after any of them.

The order is: admin token, children that the pods depend on, deletion costs, Deployment with its replica count, limits.
Each write is complete in itself and the next pass reads the state back. An operator that restarts after any of them
therefore converges to the same state.
"""

import asyncio
import json
import logging
from dataclasses import replace
from typing import Final

from sluice import contract
from sluice_operator import render
from sluice_operator.api import LLMDeployment
from sluice_operator.autoscaler.values import Decision
from sluice_operator.cluster.client import ClusterError, Key, Object
from sluice_operator.cluster.fleet import ObservedFleet, ObservedPod, replicas_of
from sluice_operator.engines.client import ScrapeError
from sluice_operator.reconcile.admin_token import derive
from sluice_operator.reconcile.memory import Context, Remembered

log = logging.getLogger(__name__)

_REFUSED: Final = (400, 403, 422)  # by RBAC, quota or policy
_DEFAULT_DELETION_COST: Final = 0
_PERIODS: Final = 3.0  # TTL of the limits in intervals: one or two late or failed passes change no engine
_HEALING_FIRST: Final = 20.0  # seconds before the first crashed pod is replaced; the delay doubles
_HEALING_CAP: Final = 300.0  # seconds; the longest delay
# Faults that a user can fix outside the pod while the kubelet's own back-off has grown to minutes.
_HEALABLE: Final = frozenset(
    {contract.REASON_MODEL_NOT_FOUND, contract.REASON_MODEL_INVALID, contract.REASON_INSUFFICIENT_MEMORY}
)


def wanted_replicas(resource: LLMDeployment, fleet: ObservedFleet, decision: Decision) -> int | None:
    """Return the replica count for the Deployment; None leaves the field to its owner.

    Auto: the autoscaler's count, or the current one if it returns none. External and Off: `spec.replicas`. Advise: an
    initial count when the Deployment does not exist yet, None afterwards.
    """
    current, scaling = replicas_of(fleet.deployment), resource.spec.scaling
    if scaling.mode in ("External", "Off"):
        return resource.spec.replicas
    if scaling.mode == "Advise":
        return None if current is not None else decision.desired
    if decision.replicas is not None:
        return decision.replicas
    return current if current is not None else decision.desired


async def apply_children(
    key: Key, owner: Object, resource: LLMDeployment, fleet: ObservedFleet, decision: Decision, context: Context
) -> Object:
    """Apply the children, the Deployment last; return the Deployment as applied.

    Raises ClusterError, ForeignObject, OwnerDeleted.
    """
    token = await _ensure_token(key, owner, resource, fleet, context)
    replicas = wanted_replicas(resource, fleet, decision)
    *others, deployment = render.children(resource, image=context.settings.engine_image, replicas=replicas, token=token)
    await _apply_others(key, owner, others, context)
    current = replicas_of(fleet.deployment)
    falls = replicas is not None and current is not None and replicas < current
    if falls or (decision.replicas is not None and _is_carried_out(fleet, decision.replicas)):
        await _order_scale_in(resource, fleet, decision, context)
    applied = await context.cluster.apply(deployment, owner=owner)
    _remember(key, context, set_replicas=replicas)
    return applied


def _remember(key: Key, context: Context, **changes: object) -> Remembered:
    remembered = replace(context.memories.get(key, Remembered()), **changes)  # type: ignore[arg-type]
    context.memories[key] = remembered
    return remembered


async def _ensure_token(
    key: Key, owner: Object, resource: LLMDeployment, fleet: ObservedFleet, context: Context
) -> str:
    """Return the admin token and create its Secret if it does not exist.

    The creation is repeated every `children_interval`, because the operator does not read the Secret. A quota may
    reject the creation of a Secret that exists; the error is ignored if the Deployment mounts that Secret.
    """
    remembered = context.memories[key]
    if remembered.token is not None and not _children_due(remembered, context):
        return remembered.token
    token = derive(context.key, str(resource.metadata.get("uid", "")))
    secret = render.admin_secret(resource, token)
    try:
        await context.cluster.create(secret, owner=owner)
    except ClusterError as error:
        if error.status not in _REFUSED or not _mounts(fleet.deployment, secret["metadata"]["name"]):
            raise
        log.info("Secret %s/%s cannot be made anew: %s", key.namespace, secret["metadata"]["name"], error)
    _remember(key, context, token=token)
    return token


def _mounts(deployment: Object | None, secret: str) -> bool:
    template = (deployment or {}).get("spec", {}).get("template", {}).get("spec", {})
    return any((volume.get("secret") or {}).get("secretName") == secret for volume in template.get("volumes") or ())


def _children_due(remembered: Remembered, context: Context) -> bool:
    never = remembered.children is None
    return never or context.clock() - remembered.children_at >= context.settings.children_interval


async def _apply_others(key: Key, owner: Object, others: list[Object], context: Context) -> None:
    """Apply the children except the Deployment if they changed, and every `children_interval` to undo other writes."""
    remembered = context.memories[key]
    fingerprint = hash(json.dumps(others, sort_keys=True))
    if fingerprint == remembered.children and not _children_due(remembered, context):
        return
    for manifest in others:
        await context.cluster.apply(manifest, owner=owner)
    _remember(key, context, children=fingerprint, children_at=context.clock())


def _is_carried_out(fleet: ObservedFleet, replicas: int) -> bool:
    """True if at most `replicas` pods are not draining; otherwise the controller still uses the costs set before."""
    return sum(report.view.phase != "draining" for report in fleet.pods) <= replicas


async def _order_scale_in(resource: LLMDeployment, fleet: ObservedFleet, decision: Decision, context: Context) -> None:
    """Write the pod-deletion-cost of the scale-in candidates; the ReplicaSet controller deletes the lowest cost first,
    all else being equal. The next candidate is annotated in advance for gateways that read the annotation, and its
    cost is reset when the pod is needed again."""
    leaving = decision.scale_in_candidates or (
        () if decision.next_scale_in_candidate is None else (decision.next_scale_in_candidate,)
    )
    places = {name: place - len(leaving) for place, name in enumerate(leaving)}
    for report in fleet.pods:
        cost = places.get(report.view.name, _DEFAULT_DELETION_COST)
        if report.view.phase == "draining" or (report.deletion_cost or _DEFAULT_DELETION_COST) == cost:
            continue
        try:
            await context.cluster.apply(render.deletion_cost(resource, report.view.name, cost))
        except ClusterError as error:
            if error.status not in (404, 409, 422):  # the pod was deleted in the meantime
                raise


async def send_limits(key: Key, fleet: ObservedFleet, decision: Decision, context: Context) -> tuple[str, ...]:
    """PATCH /limits on every engine that has new bounds or needs a Retry-After for a replica that is starting.

    Returns one sentence per engine where the call failed. Such an engine keeps its last limits until their TTL ends,
    and then uses its targets file.
    """
    token, bounds = context.memories[key].token, dict(decision.bounds)
    missing = (replicas_of(fleet.deployment) or 0) > fleet.ready  # if False, a starting pod only replaces another one
    wait = decision.retry_after or 0.0

    ttl = _PERIODS * context.settings.interval

    async def send(report: ObservedPod) -> str:
        name, loading = report.view.name, report.view.phase == "loading"
        told = wait if missing or loading else 0.0
        heard = report.view.sample is not None and report.view.phase in ("loading", "ready")
        if not report.answered:  # a second call would cost a second timeout
            return ""
        if report.endpoint is None or token is None or (name not in bounds and not (heard and told)):
            return ""
        try:
            await context.scraper.patch_limits(report.endpoint, token, bounds.get(name), told, ttl)
        except ScrapeError as error:
            context.metrics.scrapes_failed(1)
            log.warning("limits not set: %s", error)
            return str(error)
        return ""

    return tuple(filter(None, await asyncio.gather(*(send(report) for report in fleet.pods))))


async def replace_crashed(key: Key, fleet: ObservedFleet, context: Context) -> None:
    """While no pod is ready, delete one crashed pod at a time, with exponential backoff. Raises ClusterError.

    The replacement starts at once; the kubelet would wait up to five minutes after the model has become available.
    """
    attempts, last = context.memories[key].healing
    if fleet.ready:
        if attempts:
            _remember(key, context, healing=(0, 0.0))
        return
    crashed = [r for r in fleet.pods if r.view.phase == "failed" and r.problem and r.problem.reason in _HEALABLE]
    if not crashed:
        return
    now = context.clock()
    if now - max(last, min(report.view.since for report in crashed)) < min(
        _HEALING_FIRST * 2 ** min(attempts, 16), _HEALING_CAP
    ):
        return
    await context.cluster.delete("Pod", key.namespace, crashed[0].view.name)
    _remember(key, context, healing=(attempts + 1, now))
