"""The choice of a pod template: a pure function of the record, what is asked and what the pods show.

The rules are tried in order; the first one that applies returns the next record. Every rule leaves a state from which
the same rule, or none, applies again: an operator that restarts after any write chooses the same template.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from sluice_operator.api import Rollout
from sluice_operator.cluster.pod_status import stamp
from sluice_operator.revisions.values import (
    Asked,
    Choice,
    Failure,
    Live,
    Record,
    Revision,
    Upgrade,
    computes_on,
    image_of,
    secret_of,
    template_fingerprint,
    with_secret,
)


@dataclass(frozen=True, slots=True)
class _Case:
    """The input of a rule. `rendered` is what the spec and the operator's settings ask for now."""

    record: Record
    asked: Asked
    live: Live
    rollout: Rollout
    rendered: Revision
    window_is_open: bool
    slot_is_free: bool


def choose(
    record: Record | None,
    asked: Asked,
    live: Live,
    rollout: Rollout,
    *,
    window_is_open: bool = False,
    slot_is_free: bool = False,
) -> Choice:
    """Return the pod template to apply.

    record: None before the first Deployment. rollout: the policies of the spec. window_is_open: the upgrade window is
    open and a slot is free. slot_is_free: a new key of the operator may move the pods.
    """
    rendered = _rendered(asked, asked.image, live)
    is_written = record is not None
    if record is None:
        record = Record(asked.image, rendered)
    case = _Case(_observed(record, asked, live), asked, live, rollout, rendered, window_is_open, slot_is_free)
    chosen = next((found for rule in _RULES if (found := rule(case)) is not None), case.record)
    chosen = _with_key(chosen, case)
    failed, applied, before = chosen.failed, chosen.applied, case.record.applied
    takes_key = _is_same(applied, before) and secret_of(applied.pod) != secret_of(before.pod)
    is_windowed = applied.is_upgrade and asked.approved != applied.template and not _is_same(applied, before)
    return Choice(
        record=chosen,
        pod=applied.pod,
        serving=case.record if is_written else None,
        failure=failed if failed is not None and failed.spec == asked.spec != applied.spec else None,
        pending=_pending(chosen, case),
        is_kept=is_written and _is_same(applied, record.applied),
        needs_slot=is_windowed or (takes_key and chosen.is_rekeyed),
        takes_key=takes_key,
        awaits_key=secret_of(applied.pod) not in ("", asked.secret),
    )


def _observed(record: Record, asked: Asked, live: Live) -> Record:
    """The record with what the pods have proved since it was written, without the failure of a spec that was given up."""
    if record.failed is not None and record.failed.spec != asked.spec:
        record = replace(record, failed=None)
    if live.fetched is not None and record.applied.spec == asked.spec:
        record = replace(record, applied=replace(record.applied, fetched=live.fetched))
    if live.is_ready or live.has_none:
        record = replace(record, is_rekeyed=False)
    if not live.is_ready or record.applied.ready:
        return record
    return replace(record, applied=replace(record.applied, ready=True, since="", is_upgrade=False), good=None)


def _keeps_failed(case: _Case) -> Record | None:
    """A spec that failed is tried again only after a change."""
    failed, applied = case.record.failed, case.record.applied
    return case.record if failed is not None and failed.spec == case.asked.spec != applied.spec else None


def _returns(case: _Case) -> Record | None:
    """The user asks again for the spec of the last good revision: its pods still run, whatever is rendered now."""
    good = case.record.good
    if good is None or not good.spec == case.asked.spec != case.record.applied.spec:
        return None
    return replace(case.record, applied=good, good=None, failed=None, is_rekeyed=False)


def _changes(case: _Case) -> Record | None:
    """The user asks for other pods."""
    record, asked = case.record, case.asked
    if asked.spec == record.applied.spec:
        return None
    # An image is for one kind of accelerator, so it is not kept for another.
    moves = not computes_on(record.applied.pod, asked.accelerator)
    takes_newest = asked.has_own_image or moves or case.rollout.upgrade_policy == "OnChange"
    image = asked.image if takes_newest else record.image
    return _begun(image, _rendered(asked, image, case.live), case)


def _goes_back(case: _Case) -> Record | None:
    """The pods of the applied revision did not start within the deadline, and an earlier one was ready."""
    record, failure = case.record, case.live.failure
    if case.rollout.rollback != "Auto" or record.good is None or record.applied.ready or failure is None:
        return None
    begun = stamp(record.applied.since)
    # The Deployment may still show the timeout of an earlier template for a moment after it was written.
    if begun is not None and (case.live.now - begun).total_seconds() < case.rollout.progress_deadline_seconds:
        return None
    failed = Failure(record.applied.spec, record.applied.template, *failure)
    applied = replace(record.good, is_upgrade=False)
    return replace(record, applied=applied, good=None, failed=failed, is_rekeyed=False)


def _is_current(case: _Case) -> Record | None:
    """The pods are what the operator renders."""
    if case.rendered.template != case.record.applied.template:
        return None
    return replace(case.record, image=case.asked.image)


def _upgrades(case: _Case) -> Record | None:
    """The pods move to what the operator renders now, because nothing serves, the user allows it, or the window does."""
    record, rendered = case.record, case.rendered
    if record.failed is not None and record.failed.template == rendered.template:
        return None
    never_served = not record.applied.ready and record.good is None
    in_window = case.window_is_open and case.rollout.upgrade_policy == "Window" and record.applied.ready
    if never_served:
        return Record(case.asked.image, rendered)
    if case.asked.approved != rendered.template and not in_window:
        return None
    return _begun(case.asked.image, replace(rendered, is_upgrade=True), case)


_RULES: Final[tuple[Callable[[_Case], Record | None], ...]] = (
    _keeps_failed,
    _returns,
    _changes,
    _goes_back,
    _is_current,
    _upgrades,
)


def _with_key(record: Record, case: _Case) -> Record:
    """The record with the Secret of the operator's key: at once where no pod serves, else with a slot.

    Only a fleet whose pods are all ready takes a slot: one that cannot become ready would keep it from the others.
    """
    applied, secret = record.applied, case.asked.secret
    if secret_of(applied.pod) in ("", secret):
        return record
    renamed = replace(record, applied=replace(applied, pod=with_secret(applied.pod, secret)))
    never_served = not applied.ready and record.good is None
    if never_served or case.live.has_none:
        return renamed
    can_move = case.slot_is_free and case.live.is_ready and applied.ready and _is_same(applied, case.record.applied)
    return replace(renamed, is_rekeyed=True) if can_move else record


def _is_same(one: Revision, other: Revision) -> bool:
    """True for the same template of the same spec, whatever Secret it mounts."""
    return (one.spec, one.template) == (other.spec, other.template)


def _pending(record: Record, case: _Case) -> Upgrade | None:
    rendered, asked = case.rendered, case.asked
    if record.applied.template == rendered.template or record.applied.spec != asked.spec:
        return None
    failed = record.failed if record.failed is not None and record.failed.template == rendered.template else None
    changes = not asked.has_own_image and asked.image != image_of(record.applied.pod)
    return Upgrade(asked.image, rendered.template, changes, failed)


def _begun(image: str, revision: Revision, case: _Case) -> Record:
    """The record once this revision replaces the applied one, with the last one that was ready to go back to."""
    good = case.record.applied if case.record.applied.ready else case.record.good
    return Record(image, revision if good is None else replace(revision, since=_text(case.live.now)), good=good)


def _rendered(asked: Asked, image: str, live: Live) -> Revision:
    pod = asked.render(image)
    return Revision(asked.spec, template_fingerprint(pod), pod, fetched=live.fetched)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
