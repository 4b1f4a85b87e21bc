"""Carry out: the writes of one pass, in an order that may be cut off after any of them.

Token, then what the pods lean on, then the order of a scale-in, then the Deployment with its count, then limits.
Each write is complete in itself and the next pass reads back where it stands, so a killed operator's successor ends
in the same state.
"""

import asyncio
import base64
import json
import logging
import secrets
from dataclasses import replace
from typing import Final

from sluice import contract
from sluice_operator import render
from sluice_operator.api import LLMDeployment
from sluice_operator.context import Context, Remembered
from sluice_operator.decide.values import Decision
from sluice_operator.observe import Fleet, PodReport, replicas_of
from sluice_operator.scrape import ScrapeError
from sluice_operator.world import ForeignObject, Key, Object, WorldError, is_owned

log = logging.getLogger(__name__)

_NOT_A_VICTIM: Final = 0
_HEALING_FIRST: Final = 20.0  # seconds before the first crashed pod is replaced; doubles
_HEALING_CAP: Final = 300.0
# What may be mended outside while the kubelet's own back-off has grown to minutes.
_HEALABLE: Final = frozenset(
    {contract.REASON_MODEL_NOT_FOUND, contract.REASON_MODEL_INVALID, contract.REASON_INSUFFICIENT_MEMORY}
)


def wanted_replicas(resource: LLMDeployment, fleet: Fleet, decision: Decision) -> int | None:
    """What the Deployment shall ask for; None leaves the field to its owner.

    Auto: the law. External and Off: `spec.replicas`. Advise: a first count, then never again.
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
    key: Key, owner: Object, resource: LLMDeployment, fleet: Fleet, decision: Decision, context: Context
) -> None:
    """The children, the Deployment with its count last. Raises WorldError, ForeignObject."""
    await _ensure_token(key, owner, resource, context)
    replicas = wanted_replicas(resource, fleet, decision)
    *others, deployment = render.children(resource, image=context.settings.engine_image, replicas=replicas)
    await _apply_others(key, owner, others, context)
    current = replicas_of(fleet.deployment)
    falls = replicas is not None and current is not None and replicas < current
    if falls or (decision.replicas is not None and _is_carried_out(fleet, decision.replicas)):
        await _order_scale_in(resource, fleet, decision, context)
    await context.world.apply(deployment, owner=owner)
    _remember(key, context, set_replicas=replicas)


async def follow_up(key: Key, fleet: Fleet, decision: Decision, context: Context) -> None:
    """What may come late: limits, and successors of crashed pods. Raises WorldError."""
    await _send_bounds(key, fleet, decision, context)
    await _replace_crashed(key, fleet, context)


def _remember(key: Key, context: Context, **changes: object) -> Remembered:
    remembered = replace(context.memories.get(key, Remembered()), **changes)  # type: ignore[arg-type]
    context.memories[key] = remembered
    return remembered


async def _ensure_token(key: Key, owner: Object, resource: LLMDeployment, context: Context) -> None:
    """The admin token is made once and read back ever after; it is looked for again with the other children."""
    remembered = context.memories[key]
    if remembered.token is not None and not _children_due(remembered, context):
        return
    name = render.names.admin_secret(key.name)
    found = await context.world.get("Secret", key.namespace, name)
    if found is None:
        made = render.admin_secret(resource, secrets.token_urlsafe(32))
        found = await context.world.create(made) or await context.world.get("Secret", key.namespace, name)
    if found is None:
        raise WorldError(f"Secret {key.namespace}/{name} was there and is gone again: it is looked for once more")
    if not is_owned(found, owner):
        raise ForeignObject(f"Secret {key.namespace}/{name} exists and does not belong to this LLMDeployment")
    _remember(key, context, token=_token_in(found))


def _token_in(secret: Object) -> str:
    if text := (secret.get("stringData") or {}).get(contract.ADMIN_TOKEN_KEY):
        return str(text)
    try:
        return base64.b64decode((secret.get("data") or {}).get(contract.ADMIN_TOKEN_KEY, ""), validate=True).decode()
    except ValueError as error:
        name = secret["metadata"]["name"]
        raise WorldError(f"Secret {name} holds no readable token: delete it and restart the engine pods") from error


def _children_due(remembered: Remembered, context: Context) -> bool:
    never = remembered.children is None
    return never or context.clock() - remembered.children_at >= context.settings.children_interval


async def _apply_others(key: Key, owner: Object, others: list[Object], context: Context) -> None:
    """The children that hardly ever change: when they changed, and every `children_interval` against other hands."""
    remembered = context.memories[key]
    fingerprint = hash(json.dumps(others, sort_keys=True))
    if fingerprint == remembered.children and not _children_due(remembered, context):
        return
    for manifest in others:
        await context.world.apply(manifest, owner=owner)
    _remember(key, context, children=fingerprint, children_at=context.clock())


def _is_carried_out(fleet: Fleet, replicas: int) -> bool:
    """Whether no more pods are there than were asked for: else the controller still chooses by the costs of the last order."""
    return sum(report.view.phase != "draining" for report in fleet.pods) <= replicas


async def _order_scale_in(resource: LLMDeployment, fleet: Fleet, decision: Decision, context: Context) -> None:
    """Annotate who leaves first: the ReplicaSet controller takes the lowest cost, all else being equal. Who is to leave
    next carries it beforehand, for routers that read it, and gives it back when it is needed after all."""
    leaving = decision.victims or (() if decision.retiring is None else (decision.retiring,))
    places = {name: place - len(leaving) for place, name in enumerate(leaving)}
    for report in fleet.pods:
        cost = places.get(report.view.name, _NOT_A_VICTIM)
        if report.view.phase == "draining" or (report.deletion_cost or _NOT_A_VICTIM) == cost:
            continue
        try:
            await context.world.apply(render.deletion_cost(resource, report.view.name, cost))
        except WorldError as error:
            if error.status not in (404, 409, 422):  # the pod went in the meantime
                raise


async def _send_bounds(key: Key, fleet: Fleet, decision: Decision, context: Context) -> None:
    """PATCH /limits on every engine that has bounds to take, or clients to tell when a replica should serve. One that
    does not answer keeps its last until their TTL."""
    token, bounds = context.memories[key].token, dict(decision.bounds)
    missing = (replicas_of(fleet.deployment) or 0) > fleet.ready  # else the one that comes replaces another
    wait = decision.retry_after or 0.0

    async def send(report: PodReport) -> None:
        name, loading = report.view.name, report.view.phase == "loading"
        told = wait if missing or loading else 0.0
        heard = report.view.sample is not None and report.view.phase in ("loading", "ready")
        if report.endpoint is None or token is None or (name not in bounds and not (heard and told)):
            return
        try:
            await context.scraper.patch_limits(report.endpoint, token, bounds.get(name), told)
        except ScrapeError as error:
            context.metrics.scrapes_failed(1)
            log.warning("limits not set: %s", error)

    await asyncio.gather(*(send(report) for report in fleet.pods))


async def _replace_crashed(key: Key, fleet: Fleet, context: Context) -> None:
    """While nothing serves, take away one crashed pod at a time, ever more slowly: its successor starts at once where
    the kubelet would wait up to five minutes after the model has been put in place."""
    attempts, last = context.memories[key].healing
    if fleet.ready:
        if attempts:
            _remember(key, context, healing=(0, 0.0))
        return
    crashed = [r for r in fleet.pods if r.view.phase == "failed" and r.trouble and r.trouble.reason in _HEALABLE]
    if not crashed:
        return
    now = context.clock()
    if now - max(last, min(report.view.since for report in crashed)) < min(
        _HEALING_FIRST * 2 ** min(attempts, 16), _HEALING_CAP
    ):
        return
    await context.world.delete("Pod", key.namespace, crashed[0].view.name)
    _remember(key, context, healing=(attempts + 1, now))
