"""A new key of the operator: its Secret reaches the pods a few fleets at a time, and is no upgrade of their template."""

from typing import Any

import pytest

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.render.deployment import fingerprint
from sluice_operator.revisions.choose import choose
from sluice_operator.revisions.record import read_record, record_of, with_revision
from sluice_operator.revisions.values import Asked, Choice, Live, Record, image_of, secret_of, with_secret
from tests.operator.revisions.test_choose import AUTO, MANUAL, NOW, POLICIES, TIMEOUT, asked, runs

READY = Live(NOW, is_ready=True)


def keyed(secret: str, spec: str = "A", **changes: Any) -> Asked:
    """An operator with the key of this admin Secret."""
    base = asked(spec, **changes)

    def render(default: str) -> Object:
        return with_secret(base.render(default), secret)

    return asked(spec, **changes | {"secret": secret, "render": render})


def served() -> Record:
    """Of a fleet whose pods have all been ready with the first key."""
    return choose(choose(None, keyed("s1"), Live(NOW), MANUAL).record, keyed("s1"), READY, MANUAL).record


def look(record: Record, secret: str = "s2", live: Live = READY, *, free: bool = True, **changes: Any) -> Choice:
    """A choice that is the same a second time."""
    what = keyed(secret, **changes)
    choice = choose(record, what, live, MANUAL, slot_is_free=free)
    assert choose(choice.record, what, live, MANUAL, slot_is_free=free).pod == choice.pod
    return choice


def test_without_a_slot_the_pods_keep_the_token_that_they_have() -> None:
    choice = look(served(), free=False)
    assert (secret_of(choice.pod), choice.awaits_key, choice.is_kept, choice.needs_slot) == ("s1", True, True, False)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_slot_moves_the_pods_to_the_new_key_whatever_the_policy_is_and_is_no_upgrade(policy: str) -> None:
    what = keyed("s2", image="engine:2")
    begun = choose(served(), what, READY, POLICIES[policy], slot_is_free=True)
    assert (secret_of(begun.pod), image_of(begun.pod), begun.is_kept) == ("s2", "engine:1", True)
    assert begun.needs_slot and begun.takes_key and begun.record.moves and not begun.awaits_key
    goes_on = choose(begun.record, what, Live(NOW), POLICIES[policy])
    assert (goes_on.pod, goes_on.needs_slot, goes_on.record.moves) == (begun.pod, False, True)
    done = choose(goes_on.record, what, READY, POLICIES[policy])
    assert (done.pod, done.record.moves, done.record.applied.ready) == (begun.pod, False, True)


def test_a_fleet_whose_pods_are_not_all_ready_takes_no_slot() -> None:
    choice = look(served(), live=Live(NOW))
    assert (secret_of(choice.pod), choice.needs_slot, choice.awaits_key) == ("s1", False, True)


@pytest.mark.parametrize("live", [Live(NOW), Live(NOW, has_none=True)], ids=["never served", "no pod"])
def test_where_no_pod_serves_the_new_key_needs_no_slot(live: Live) -> None:
    record = served() if live.has_none else choose(None, keyed("s1"), Live(NOW), MANUAL).record
    choice = look(record, live=live, free=False)
    assert (secret_of(choice.pod), choice.record.moves, choice.needs_slot) == ("s2", False, False)


def test_a_change_of_the_spec_takes_the_new_key_along() -> None:
    choice = look(served(), free=False, spec="B")
    assert (runs(choice)[0], secret_of(choice.pod), choice.record.moves) == ("B", "s2", False)


def test_a_rollback_returns_to_the_pods_that_still_run_and_their_token() -> None:
    bad = choose(served(), keyed("s1", "B"), Live(NOW), AUTO).record
    late = Live(NOW.replace(year=2027), failure=TIMEOUT)
    back = choose(bad, keyed("s2", "B"), late, AUTO, slot_is_free=True)
    assert (runs(back)[0], secret_of(back.pod), back.awaits_key) == ("A", "s1", True)
    moved = choose(back.record, keyed("s2", "B"), READY, AUTO, slot_is_free=True)
    assert (runs(moved)[0], secret_of(moved.pod), moved.needs_slot) == ("A", "s2", True)


def test_a_second_new_key_waits_until_the_pods_have_the_first_one() -> None:
    begun = look(served())
    waits = look(begun.record, "s3", Live(NOW))
    assert (secret_of(waits.pod), waits.needs_slot, waits.record.moves) == ("s2", False, True)
    assert secret_of(look(waits.record, "s3").pod) == "s3"


def written(record: Record, secret: str) -> Object:
    """The Deployment of an earlier operator, which changed the Secret in the template beside the record."""
    pod = with_secret(record.applied.pod, secret)
    metadata = {"name": "chat", "annotations": {}}
    return with_revision({"metadata": metadata, "spec": {}}, Choice(record, pod))


def test_the_secret_that_an_earlier_operator_has_written_beside_the_record_is_the_pods_own() -> None:
    deployment = written(served(), "s2")
    kept = read_record(deployment)
    assert kept is not None and secret_of(kept.applied.pod) == "s1"
    record = record_of(deployment, keyed("s3"), {}, 1)
    assert record is not None and secret_of(look(record, "s3", free=False).pod) == "s2"


def test_a_secret_that_another_writer_has_put_into_the_template_is_not_taken_for_the_pods_own() -> None:
    deployment = written(served(), "s1")
    assert deployment["metadata"]["annotations"][contract.ANNOTATION_TEMPLATE] == fingerprint(
        deployment["spec"]["template"]
    )
    deployment["spec"]["template"] = with_secret(deployment["spec"]["template"], "theirs")
    record = record_of(deployment, keyed("s1"), {}, 1)
    assert record is not None and secret_of(look(record, "s1").pod) == "s1"
