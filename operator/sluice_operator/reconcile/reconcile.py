"""One reconcile pass over one resource: observe, decide, apply, report. Level-triggered and idempotent.

A pass reads the whole state whatever triggered it. If it is interrupted after any write, the next pass converges to
the same state. The cluster and `sluice up` run this code, each over its own `ClusterClient`.
"""

import logging
import math
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Final

from sluice import contract
from sluice_operator import render
from sluice_operator.api import InvalidResource, LLMDeployment, parse
from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.explain import replicas as explain
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision, Reason
from sluice_operator.cluster.client import ClusterError, ForeignObject, Key, Object, OwnerDeleted
from sluice_operator.cluster.fleet import replicas_of
from sluice_operator.reconcile.admin_token import derive
from sluice_operator.reconcile.apply import apply_children, replace_crashed, send_limits
from sluice_operator.reconcile.conflicts import replicas_manager, same_name
from sluice_operator.reconcile.memory import Context, Remembered
from sluice_operator.reconcile.observe import observe
from sluice_operator.status import build as ledger
from sluice_operator.status.conditions import Facts
from sluice_operator.status.events import fresh, notes
from sluice_operator.status.rollout import fingerprint_of, rollout_of

__all__ = ["GONE", "Context", "Remembered", "reconcile"]

log = logging.getLogger(__name__)

GONE: Final = math.inf  # the resource does not exist (any more): no next pass
_OTHER_WRITER_SECONDS: Final = 600.0
_REFUSED: Final = (400, 403, 422)  # by RBAC, quota or policy: reported, since only a user can fix it


@dataclass(frozen=True, slots=True)
class _Pass:
    """The state that one pass has gathered so far."""

    key: Key
    document: Object
    resource: LLMDeployment | None
    facts: Facts


async def reconcile(key: Key, context: Context) -> float:
    """Return the seconds until the next pass; GONE after a deletion. Raises ClusterError; the caller then retries."""
    document = await context.cluster.get(contract.KIND, key.namespace, key.name)
    if document is None or document["metadata"].get("deletionTimestamp"):
        context.forget(key)
        return GONE
    uid = str(document["metadata"].get("uid", ""))
    if _remembered(key, context).uid != uid:
        context.memories[key] = Remembered(uid=uid, decide=ledger.recalled(document.get("status") or {}))
    found = await _look(key, document, context)
    if _may_act(found):
        try:
            found = await _decide_and_act(found, context)
        except OwnerDeleted as error:
            log.info("the pass ends: %s", error)
            context.forget(key)
            return GONE
    await _tell(found, context)
    return context.settings.interval


def _stamp(context: Context) -> str:
    return context.wall().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _remembered(key: Key, context: Context) -> Remembered:
    return context.memories.setdefault(key, Remembered())


async def _look(key: Key, document: Object, context: Context) -> _Pass:
    """Parse and observe, without any decision."""
    resource: LLMDeployment | None = None
    faults: tuple[str, ...] = ()
    conflict = ""
    try:
        resource = parse(document, strict=False)
    except InvalidResource as error:
        faults = error.faults
    else:
        conflict = await same_name(key, document, resource, context)
    seen = _remembered(key, context).seen
    fleet, seen = await observe(
        document, context.cluster, context.scraper, seen, clock=context.clock, wall=context.wall()
    )
    context.memories[key] = replace(_remembered(key, context), seen=seen)
    context.metrics.scrapes_failed(fleet.scrape_failures)
    facts = Facts(
        generation=int(document["metadata"].get("generation", 0)),
        spec=resource.spec if resource else None,
        faults=faults,
        conflict=conflict,
        fleet=fleet,
        rollout=rollout_of(fleet.deployment, None, _template(resource, context)),
        previous=ledger.by_type(document.get("status") or {}),
    )
    return _Pass(key, document, resource, facts)


def _template(resource: LLMDeployment | None, context: Context) -> str | None:
    """Fingerprint of the pod template that a paused resource asks for; None for other resources, which apply theirs."""
    if resource is None or not resource.spec.paused:
        return None
    token = derive(context.key, str(resource.metadata.get("uid", "")))
    *_, deployment = render.children(resource, image=context.settings.engine_image, replicas=None, token=token)
    return fingerprint_of(deployment)


def _may_act(found: _Pass) -> bool:
    return found.resource is not None and not found.facts.conflict and not found.resource.spec.paused


async def _decide_and_act(found: _Pass, context: Context) -> _Pass:
    """Decide and write the children and limits; the rest of a pass writes only the status and Events."""
    key, resource, fleet = found.key, found.resource, found.facts.fleet
    if resource is None:
        return found
    hand = _other_hand(found, context)
    found = _report_external_writer(found, hand, context)
    remembered, now = _remembered(key, context), context.clock()
    before = remembered.decide if hand is None else _taken_in(hand, remembered.decide, now)
    decision, memory = decide(resource.spec, fleet.observed, before, now)
    if hand is not None:
        decision = replace(decision, reasons=(hand, *decision.reasons))
    facts = replace(found.facts, decision=decision)
    context.decisions[key] = decision
    try:
        applied = await apply_children(key, found.document, resource, fleet, decision, context)
    except ForeignObject as error:
        return replace(found, facts=replace(facts, conflict=str(error), decision=None))
    except ClusterError as error:
        unset = await send_limits(key, fleet, decision, context)  # running engines still get their limits
        if error.status in _REFUSED:
            refused = replace(facts, refused=str(error), decision=None, limits_unset=unset)
            await _tell(replace(found, facts=refused), context)
        raise
    # The memory is kept only now: a decision that was not carried out is made and reported again.
    remembered = context.memories[key]
    context.memories[key] = replace(remembered, decide=memory, unrecorded=_unrecorded(remembered, decision, context))
    _log(key, decision, context)
    unset = await send_limits(key, fleet, decision, context)
    await replace_crashed(key, fleet, context)
    rollout = rollout_of(applied, fleet.deployment, fingerprint_of(applied))
    seen = replace(fleet, deployment=applied)
    return replace(found, facts=replace(facts, fleet=seen, rollout=rollout, limits_unset=unset))


def _unrecorded(remembered: Remembered, decision: Decision, context: Context) -> tuple[tuple[str, Reason], ...]:
    """Decisions not in the status yet, at most MAX_DECISIONS: status writes may fail for days."""
    stamp = _stamp(context)
    made = ((stamp, reason) for reason in decision.reasons)
    return (*remembered.unrecorded, *made)[-ledger.MAX_DECISIONS :]


def _log(key: Key, decision: Decision, context: Context) -> None:
    for reason in decision.reasons:
        context.metrics.decided(reason.dial, reason.binding)
        where = {"namespace": key.namespace, "resource": key.name, "dial": reason.dial, "reason": reason.binding}
        log.info("%s/%s: %s", key.namespace, key.name, reason.sentence, extra=where | dict(reason.numbers))


def _other_hand(found: _Pass, context: Context) -> Reason | None:
    """Why the Deployment's count differs from the last one that this operator recorded; None if it does not differ or
    the operator does not own it. Causes: an external writer, or an own write that a restart or a lost response left
    unrecorded."""
    deployment = found.facts.fleet.deployment
    current = replicas_of(deployment)
    mode = found.resource.spec.scaling.mode if found.resource else "Off"
    if mode != "Auto" or deployment is None or current is None:
        return None
    known = _remembered(found.key, context).set_replicas
    before = known if known is not None else ledger.last_replicas(found.document.get("status") or {})
    if before is None or before == current:
        return None
    writer = replicas_manager(deployment)
    if writer in ("", contract.FIELD_MANAGER):
        return explain.unrecorded_write(before, current)
    return explain.external_write(before, current, writer)


def _taken_in(hand: Reason, memory: AutoscalerState, now: float) -> AutoscalerState:
    """The autoscaler's memory after such a change, which is reported once. A scale-down by this operator still starts
    the cooldown if its response was lost."""
    lowered = hand.binding != explain.OTHER_WRITER and hand.after < hand.before
    return memory.after_unplanned_change(now if lowered else None)


def _report_external_writer(found: _Pass, hand: Reason | None, context: Context) -> _Pass:
    """Report an external writer in the conditions for 600 s after its last observed write."""
    remembered, now = _remembered(found.key, context), context.clock()
    if hand is not None and hand.binding == explain.OTHER_WRITER:
        remembered = replace(remembered, other_writer=(now, hand.sentence))
        context.memories[found.key] = remembered
    noticed = remembered.other_writer
    if noticed is None or now - noticed[0] > _OTHER_WRITER_SECONDS:
        return found
    return replace(found, facts=replace(found.facts, other_writer=noticed[1]))


async def _tell(found: _Pass, context: Context) -> None:
    """Write the status if it changed, then the new Events."""
    key, now = found.key, context.clock()
    remembered = _remembered(key, context)
    previous = found.document.get("status") or {}
    due = remembered.numbers_at is None or now - remembered.numbers_at >= context.settings.status_interval
    built = ledger.build(
        key,
        found.facts,
        previous,
        [ledger.record(reason, when) for when, reason in remembered.unrecorded],
        now=_stamp(context),
        numbers_due=due,
        starts=ledger.starts_of(remembered.decide),
    )
    if built != previous:
        await context.cluster.write_status(found.document, built)
    reasons = [reason for _, reason in remembered.unrecorded]
    said, told = fresh(notes(found.facts, built["conditions"], reasons), remembered.told, now)
    context.memories[key] = replace(
        remembered, unrecorded=(), told=told, numbers_at=now if due else remembered.numbers_at
    )
    for note in said:
        await context.cluster.emit_event(found.document, note.reason, note.message, warning=note.warning)
