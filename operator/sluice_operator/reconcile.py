"""One pass over one resource: look, decide, carry out, tell. Level-triggered and idempotent.

Whatever woke it, a pass reads everything and makes everything right; killed after any write, the next one ends in
the same state. The cluster and `sluice up` run this same code over their own `World`.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any, Final

from sluice import contract
from sluice_operator import status as ledger
from sluice_operator.act import apply_children, follow_up
from sluice_operator.api import InvalidResource, LLMDeployment, parse
from sluice_operator.conditions import Facts
from sluice_operator.context import Context, Remembered
from sluice_operator.decide import decide
from sluice_operator.decide.values import Decision
from sluice_operator.events import fresh, notes
from sluice_operator.observe import observe, replicas_of
from sluice_operator.rivals import other_writer, replicas_manager, same_name
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
    found = _note_other_hands(found, context)
    remembered = _remembered(key, context)
    decision, memory = decide(resource.spec, fleet.observed, remembered.decide, context.clock())
    now = _stamp(context)
    made = tuple(ledger.record(reason, now) for reason in decision.reasons)
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
    context.memories[key] = replace(remembered, decide=memory, unrecorded=_newest(remembered, *made))
    _log(key, decision, context)
    await follow_up(key, fleet, decision, context)
    return replace(found, facts=facts)


def _newest(remembered: Remembered, *made: dict[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Decisions not recorded yet; no more than the status would keep, for its writes may be refused for days."""
    return (*remembered.unrecorded, *made)[-ledger.MAX_DECISIONS :]


def _log(key: Key, decision: Decision, context: Context) -> None:
    for reason in decision.reasons:
        context.metrics.decided(reason.dial, reason.binding)
        where = {"namespace": key.namespace, "resource": key.name, "dial": reason.dial, "reason": reason.binding}
        log.info("%s/%s: %s", key.namespace, key.name, reason.sentence, extra=where | dict(reason.numbers))


def _note_other_hands(found: _Pass, context: Context) -> _Pass:
    """Is the Deployment's count what we know to have written? If not: another writer, or a write of our own that was
    cut off from its record by a restart or a lost answer."""
    key, remembered = found.key, _remembered(found.key, context)
    deployment = found.facts.fleet.deployment
    current = replicas_of(deployment)
    mode = found.resource.spec.scaling.mode if found.resource else "Off"
    if mode != "Auto" or deployment is None or current is None:
        return found
    recorded = ledger.last_replicas(found.document.get("status") or {})
    before = remembered.set_replicas if remembered.set_replicas is not None else recorded
    now = context.clock()
    if before is not None and before != current:
        if replicas_manager(deployment) in ("", contract.FIELD_MANAGER):
            late = _late_record(before, current, _stamp(context))
            # The decision was ours although its answer was lost: it counts for the pace, and nobody else made it.
            down_at = now if current < before else remembered.decide.down_at
            context.memories[key] = replace(
                remembered,
                decide=replace(remembered.decide, last_set=None, said=None, down_at=down_at),
                set_replicas=current,
                unrecorded=_newest(remembered, late),
            )
            return found
        remembered = replace(remembered, other_writer=(now, other_writer(deployment, before, current)))
        context.memories[key] = remembered
    noticed = remembered.other_writer
    if noticed is None or now - noticed[0] > _OTHER_WRITER_SECONDS:
        return found
    return replace(found, facts=replace(found.facts, other_writer=noticed[1]))


def _late_record(before: int, current: int, now: str) -> dict[str, Any]:
    """A decision of a predecessor that ended between its replicas write and its status write."""
    return {
        "time": now,
        "kind": "replicas",
        "from": before,
        "to": current,
        "reason": "CarriedOutBeforeRecorded",
        "message": f"{before} → {current} replicas: carried out, but the operator was cut off before it could record why.",
        "numbers": {},
    }


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
        remembered.unrecorded,
        now=_stamp(context),
        numbers_due=due,
        starts=ledger.starts_of(remembered.decide),
    )
    if built != previous:
        await context.world.write_status(found.document, built)
    said, told = fresh(notes(found.facts, built["conditions"]), remembered.told, now)
    context.memories[key] = replace(
        remembered, unrecorded=(), told=told, numbers_at=now if due else remembered.numbers_at
    )
    for note in said:
        await context.world.emit_event(found.document, note.reason, note.message, warning=note.warning)
