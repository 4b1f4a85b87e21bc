"""How many fleets move at the same time: by what is written, and by what this process has granted."""

import asyncio

from sluice import contract
from sluice_operator.api import Rollout
from sluice_operator.cluster.client import Key, Object
from sluice_operator.revisions.choose import choose
from sluice_operator.revisions.record import with_revision
from sluice_operator.revisions.slots import UpgradeSlots
from sluice_operator.revisions.values import Live
from tests.operator.fake_cluster import FakeCluster
from tests.operator.revisions.test_choose import NOW, POLICIES, asked

LABELS = {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_MANAGED_BY: contract.MANAGED_BY}


def moving(name: str, replicas: int = 1, *, done: bool = False) -> Object:
    """The Deployment of a fleet that an upgrade has begun to move."""
    record = choose(None, asked(), Live(NOW), Rollout()).record
    choice = choose(record, asked(image="engine:2"), Live(NOW, is_ready=True), POLICIES["Window"], window_is_open=True)
    if done:
        choice = choose(choice.record, asked(image="engine:2"), Live(NOW, is_ready=True), POLICIES["Window"])
    metadata = {"name": name, "namespace": "ns", "labels": {**LABELS, contract.LABEL_INSTANCE: name}, "annotations": {}}
    bare = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas}}
    return with_revision(bare, choice)


async def test_as_many_fleets_move_as_there_are_slots_also_when_all_ask_at_once() -> None:
    slots, cluster = UpgradeSlots(2), FakeCluster()
    answers = await asyncio.gather(*(slots.take(Key("ns", name), cluster, ()) for name in "abcde"))
    assert answers.count(True) == 2
    assert await slots.take(Key("ns", "abcde"[answers.index(True)]), cluster, ())


async def test_a_slot_that_is_given_back_is_taken_by_the_next() -> None:
    slots, cluster = UpgradeSlots(1), FakeCluster()
    assert await slots.take(Key("ns", "a"), cluster, ())
    assert not await slots.take(Key("ns", "b"), cluster, ())
    slots.release(Key("ns", "a"))
    assert await slots.take(Key("ns", "b"), cluster, ())


async def test_a_restarted_operator_counts_the_fleets_that_move() -> None:
    cluster = FakeCluster()
    for each in (moving("a"), moving("done", done=True), moving("asleep", 0)):
        cluster.store.apply(each)
    assert not await UpgradeSlots(1).take(Key("ns", "b"), cluster, ())
    assert await UpgradeSlots(1).take(Key("ns", "a"), cluster, ())
    assert await UpgradeSlots(2).take(Key("ns", "b"), cluster, ())
