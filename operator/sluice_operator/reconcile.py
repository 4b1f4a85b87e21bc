"""One pass over one resource: look, decide, carry out, tell. Level-triggered and idempotent.

Whatever woke it, a pass reads everything and makes everything right; killed after any write, the next one ends in
the same state. The cluster and `sluice up` run this same code over their own `World`.
"""

import logging
import math
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Final

from sluice import contract
from sluice_operator import status as ledger
from sluice_operator.act import apply_children, follow_up
from sluice_operator.api import InvalidResource, LLMDeployment, parse
from sluice_operator.conditions import Facts
from sluice_operator.context import Context, Remembered
from sluice_operator.decide import decide, explain
from sluice_operator.decide.values import Decision, Memory, Reason
from sluice_operator.events import fresh, notes
from sluice_operator.observe import observe, replicas_of
from sluice_operator.rivals import replicas_manager, same_name
from sluice_operator.world import ForeignObject, Key, Object, WorldError

__all__ = ["GONE", "Context", "Remembered", "reconcile"]

log = logging.getLogger(__name__)

GONE: Final = math.inf  # there is no such resource (any more): no next pass
_OTHER_WRITER_SECONDS: Final = 600.0
_REFUSED: Final = (400, 403, 422)  # by right, quota or policy: people must mend it, so people are told


@dataclass(frozen=True, slots=True)
class _Pass:
    """What one pass has found out so far."""

    key: Key
    document: Object
    resource: LLMDeployment | None
    facts: Facts


async def reconcile(key: Key, context: Context) -> float:
    """Seconds until the next wanted pass; GONE after a deletion. Raises WorldError: try again with backoff."""
    document = await context.world.get(contract.KIND, key.namespace, key.name)
    if document is None or document["metadata"].get("deletionTimestamp"):
        context.forget(key)
        return GONE
    uid = str(document["metadata"].get("uid", ""))
    if _remembered(key, context).uid != uid:
        context.memories[key] = Remembered(uid=uid, decide=ledger.recalled(document.get("status") or {}))
    found = await _look(key, document, context)
    if _may_act(found):
        found = await _decide_and_act(found, context)
    await _tell(found, context)
    return context.settings.interval


def _stamp(context: Context) -> str:
    return context.wall().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _remembered(key: Key, context: Context) -> Remembered:
    return context.memories.setdefault(key, Remembered())


async def _look(key: Key, document: Object, context: Context) -> _Pass:
    """Parse and observe; decides nothing."""
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
    fleet, seen = await observe(key, context.world, context.scraper, seen, clock=context.clock, wall=context.wall())
    context.memories[key] = replace(_remembered(key, context), seen=seen)
    context.metrics.scrapes_failed(fleet.scrape_failures)
    facts = Facts(
        generation=int(document["metadata"].get("generation", 0)),
        spec=resource.spec if resource else None,
        faults=faults,
        conflict=conflict,
        fleet=fleet,
        previous=ledger.by_type(document.get("status") or {}),
    )
    return _Pass(key, document, resource, facts)


def _may_act(found: _Pass) -> bool:
    return found.resource is not None and not found.facts.conflict and not found.resource.spec.paused


async def _decide_and_act(found: _Pass, context: Context) -> _Pass:
    """The only part of a pass that writes anything but the status."""
    key, resource, fleet = found.key, found.resource, found.facts.fleet
    if resource is None:
        return found
    hand = _other_hand(found, context)
    found = _note_rival(found, hand, context)
    remembered, now = _remembered(key, context), context.clock()
    before = remembered.decide if hand is None else _taken_in(hand, remembered.decide, now)
    decision, memory = decide(resource.spec, fleet.observed, before, now)
    if hand is not None:
        decision = replace(decision, reasons=(hand, *decision.reasons))
    facts = replace(found.facts, decision=decision)
    context.decisions[key] = decision
    try:
        await apply_children(key, found.document, resource, fleet, decision, context)
    except ForeignObject as error:
        return replace(found, facts=replace(facts, conflict=str(error), decision=None))
    except WorldError as error:
        if error.status in _REFUSED:
            await _tell(replace(found, facts=replace(facts, refused=str(error), decision=None)), context)
        raise
    # Only now: a decision that was not carried out is made, and told, again.
    remembered = context.memories[key]
    context.memories[key] = replace(remembered, decide=memory, unrecorded=_unrecorded(remembered, decision, context))
    _log(key, decision, context)
    await follow_up(key, fleet, decision, context)
    return replace(found, facts=facts)


def _unrecorded(remembered: Remembered, decision: Decision, context: Context) -> tuple[tuple[str, Reason], ...]:
    """Decisions not recorded yet; no more than the status would keep, for its writes may be refused for days."""
    stamp = _stamp(context)
    made = ((stamp, reason) for reason in decision.reasons)
    return (*remembered.unrecorded, *made)[-ledger.MAX_DECISIONS :]


def _log(key: Key, decision: Decision, context: Context) -> None:
    for reason in decision.reasons:
        context.metrics.decided(reason.dial, reason.binding)
        where = {"namespace": key.namespace, "resource": key.name, "dial": reason.dial, "reason": reason.binding}
        log.info("%s/%s: %s", key.namespace, key.name, reason.sentence, extra=where | dict(reason.numbers))


def _other_hand(found: _Pass, context: Context) -> Reason | None:
    """Why the Deployment's count is not what we know to have written: another writer, or a write of our own that was
    cut off from its record by a restart or a lost answer. None: it is what we wrote, or the count is not ours."""
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
        return explain.cut_off(before, current)
    return explain.taken_over(before, current, writer)


def _taken_in(hand: Reason, memory: Memory, now: float) -> Memory:
    """The law's memory once the change is known: told once, here. A decision that was ours although its answer was
    lost counts for the pace."""
    lowered = hand.binding != explain.OTHER_WRITER and hand.after < hand.before
    return replace(memory, last_set=None, said=None, down_at=now if lowered else memory.down_at)


def _note_rival(found: _Pass, hand: Reason | None, context: Context) -> _Pass:
    """Another writer stands in the conditions for a while after it was last seen to write."""
    remembered, now = _remembered(found.key, context), context.clock()
    if hand is not None and hand.binding == explain.OTHER_WRITER:
        remembered = replace(remembered, other_writer=(now, hand.sentence))
        context.memories[found.key] = remembered
    noticed = remembered.other_writer
    if noticed is None or now - noticed[0] > _OTHER_WRITER_SECONDS:
        return found
    return replace(found, facts=replace(found.facts, other_writer=noticed[1]))


async def _tell(found: _Pass, context: Context) -> None:
    """Status, then Events; only what changed is written."""
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
        await context.world.write_status(found.document, built)
    reasons = [reason for _, reason in remembered.unrecorded]
    said, told = fresh(notes(found.facts, built["conditions"], reasons), remembered.told, now)
    context.memories[key] = replace(
        remembered, unrecorded=(), told=told, numbers_at=now if due else remembered.numbers_at
    )
    for note in said:
        await context.world.emit_event(found.document, note.reason, note.message, warning=note.warning)
