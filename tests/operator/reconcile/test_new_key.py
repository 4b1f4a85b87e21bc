"""A new key of the operator over running fleets: who moves when, and which token each engine is sent meanwhile."""

import base64
import logging
from dataclasses import replace
from typing import Any

import pytest

from sluice import contract
from sluice.auth.read_tokens import read_key, read_token
from sluice_operator.cluster.client import ClusterError, Object
from sluice_operator.reconcile.children.admin_token import KEYRING, derive, make_key, older_keys, share_reads
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.settings import PodMonitorSettings
from tests.operator.fake_cluster import KEY, KEY_OF_OPERATOR, Clock, FakeCluster, operator, pod
from tests.operator.reconcile.test_admin_token import NAMESPACE, Guarded, guarded, held, mounted
from tests.operator.reconcile.test_read_token import Reading

NEW = b"the key that replaces the other one"


class Fleet:
    """One LLMDeployment with a pod that serves, and an operator."""

    def __init__(self, **spec: Any) -> None:
        self.cluster, self.clock, self.engines = guarded(), Clock(), Reading()
        self.cluster.edit(**spec)
        self.cluster.optional_kinds.add("PodMonitor")
        self.start(KEY_OF_OPERATOR)

    def start(self, *keys: bytes) -> None:
        """An operator with these keys, the newest first, takes over."""
        context = operator(self.cluster, self.engines, self.clock).context
        settings = replace(context.settings, metrics_auth="token", pod_monitor=PodMonitorSettings())
        context = replace(context, settings=settings, token_key=keys[0], old_keys=keys[1:])
        self.reconciler = Reconciler(context)
        self.engines.patched.clear()
        self.engines.tokens.clear()

    async def look(self, passes: int = 1) -> None:
        for _ in range(passes):
            self.clock.now += 60
            await self.reconciler.reconcile(KEY)

    async def serve(self) -> "Fleet":
        await self.look()
        self.run("a")
        await self.look(2)
        return self

    def run(self, name: str, **about: Any) -> None:
        """The Deployment's only pod is of its template."""
        made = pod(name, **about)
        made["spec"]["volumes"] = self.cluster.deployment["spec"]["template"]["spec"]["volumes"]
        self.cluster.pods = [made]

    def token(self, key: bytes) -> str:
        return derive(key, str(self.cluster.resource["metadata"]["uid"]))

    def read_token(self, key: bytes) -> str:
        return read_token(read_key(key), str(self.cluster.resource["metadata"]["uid"]))

    @property
    def sent(self) -> set[str]:
        return {token for _, token, _ in self.engines.patched}

    def occupy(self) -> None:
        """Another fleet is being moved."""
        other = self.cluster.deployment
        other["apiVersion"], other["kind"] = "apps/v1", "Deployment"
        labels = other["metadata"]["labels"] | {contract.LABEL_INSTANCE: "other"}
        record = other["metadata"]["annotations"][contract.ANNOTATION_REVISIONS][:-1] + ',"is_rekeyed":true}'
        other["metadata"] = {"name": "other", "namespace": "ns", "labels": labels, "uid": "o"} | {
            "annotations": {contract.ANNOTATION_REVISIONS: record}
        }
        self.cluster.store.apply(other)


async def test_a_fleet_that_waits_for_its_slot_is_read_and_limited_by_the_tokens_that_it_mounts() -> None:
    fleet = await Fleet().serve()
    before = mounted(fleet.cluster)
    fleet.occupy()
    fleet.start(NEW, KEY_OF_OPERATOR)
    await fleet.look(2)
    assert mounted(fleet.cluster) == before
    assert fleet.sent == {fleet.token(KEY_OF_OPERATOR)}
    assert fleet.engines.tokens == {fleet.read_token(KEY_OF_OPERATOR)}
    waits = fleet.cluster.condition("UpgradeAvailable")
    assert (waits["status"], waits["reason"]) == ("True", "NewOperatorKey")
    assert fleet.cluster.condition("Ready")["status"] == "True"
    monitor = fleet.cluster.store.get("PodMonitor", KEY.namespace, "chat-engine") or {}
    credentials = monitor["spec"]["podMetricsEndpoints"][0]["authorization"]["credentials"]
    assert credentials["name"] == f"{before}-read"


async def test_a_free_slot_moves_the_fleet_and_each_engine_is_sent_its_own_token() -> None:
    fleet = await Fleet().serve()
    before = mounted(fleet.cluster)
    fleet.start(NEW, KEY_OF_OPERATOR)
    await fleet.look()
    assert mounted(fleet.cluster) != before
    moving = fleet.cluster.condition("UpgradeAvailable")
    assert (moving["status"], moving["reason"]) == ("False", "Upgrading") and "new key" in moving["message"]
    assert fleet.sent == {fleet.token(KEY_OF_OPERATOR)}
    fleet.start(NEW, KEY_OF_OPERATOR)
    fleet.cluster.newest = "v2"
    fleet.run("b", hash_="v2")
    await fleet.look(2)
    assert fleet.sent == {fleet.token(NEW)} and fleet.engines.tokens == {fleet.read_token(NEW)}
    assert fleet.cluster.condition("UpgradeAvailable")["reason"] == "UpToDate"
    assert held(fleet.cluster)[mounted(fleet.cluster)] == fleet.token(NEW)


async def test_a_deleted_secret_of_the_earlier_key_is_made_again_while_it_is_mounted() -> None:
    fleet = await Fleet().serve()
    fleet.occupy()
    old = mounted(fleet.cluster)
    for kind in ("Secret", "ConfigMap"):  # the cluster's garbage collector deletes a sentinel with its Secret
        for name in (old, f"{old}-read"):
            fleet.cluster.store.delete(kind, KEY.namespace, name)
    fleet.start(NEW, KEY_OF_OPERATOR)
    await fleet.look()
    assert {old, f"{old}-read"} <= set(held(fleet.cluster))


async def test_a_lost_key_moves_no_more_fleets_at_once_than_a_replaced_one() -> None:
    fleet = await Fleet().serve()
    before = mounted(fleet.cluster)
    fleet.occupy()
    fleet.start(NEW)
    await fleet.look(2)
    assert mounted(fleet.cluster) == before
    fleet.cluster.store.delete("Deployment", KEY.namespace, "other")
    await fleet.look()
    assert mounted(fleet.cluster) != before


@pytest.mark.parametrize("spec", [{"paused": True}], ids=["paused"])
async def test_a_paused_fleet_takes_no_slot_and_keeps_its_token(spec: dict[str, Any]) -> None:
    fleet = await Fleet().serve()
    before = mounted(fleet.cluster)
    fleet.cluster.edit(**spec)
    fleet.start(NEW)
    await fleet.look(2)
    assert mounted(fleet.cluster) == before
    assert await fleet.reconciler.upgrades.take(replace(KEY, name="x"), fleet.cluster, ())


async def test_no_canary_tries_a_new_key() -> None:
    fleet = await Fleet(rollout={"canary": {}}).serve()
    fleet.start(NEW, KEY_OF_OPERATOR)
    await fleet.look(2)
    assert fleet.cluster.store.get("Deployment", KEY.namespace, "chat-canary") is None
    assert "canary" not in fleet.cluster.status


def keyring(cluster: FakeCluster) -> list[str]:
    secret: Object = cluster.store.get("Secret", NAMESPACE, "ring") or {}
    return base64.b64decode(secret["data"][KEYRING]).decode().split()


async def test_the_keyring_has_the_newest_keys_and_is_written_only_for_a_new_one() -> None:
    cluster, keys = FakeCluster(), [make_key() for _ in range(4)]
    found = [await older_keys(cluster, NAMESPACE, "ring", key) for key in (keys[0], keys[0], *keys[1:])]
    assert found == [(), (), (keys[0],), (keys[1], keys[0]), (keys[2], keys[1])]
    assert keyring(cluster) == [each.hex() for each in (keys[3], keys[2], keys[1])]
    assert cluster.writes == ["create Secret", *["apply Secret ring"] * 3]


@pytest.mark.parametrize("data", [{}, {KEYRING: "not base64!"}, {KEYRING: base64.b64encode(b"xyz ab").decode()}])
async def test_a_keyring_that_cannot_be_read_is_written_anew(data: dict[str, str]) -> None:
    cluster, key = FakeCluster(), make_key()
    cluster.store.create({"kind": "Secret", "metadata": {"name": "ring", "namespace": NAMESPACE}, "data": data})
    assert await older_keys(cluster, NAMESPACE, "ring", key) == ()
    assert keyring(cluster) == [key.hex()]


async def test_without_the_right_to_the_keyring_the_operator_goes_on_and_says_what_that_costs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert await older_keys(Guarded(), NAMESPACE, "ring", NEW) == ()
    assert "take no limits until they are rolled: secrets is forbidden" in caplog.text


async def test_another_error_of_the_keyring_is_raised_so_that_it_is_read_later() -> None:
    class Down(FakeCluster):
        async def get(self, *_: Any) -> Object | None:
            raise ClusterError("503", status=503)

    with pytest.raises(ClusterError, match="503"):
        await older_keys(Down(), NAMESPACE, "ring", NEW)


async def test_gateways_get_the_keys_of_reads_of_all_keys_and_prometheus_the_newest_token() -> None:
    cluster = FakeCluster()
    await share_reads(cluster, NAMESPACE, "read", NEW, (KEY_OF_OPERATOR,))
    found = {
        name: base64.b64decode(value).decode()
        for name, value in (cluster.store.get("Secret", NAMESPACE, "read") or {})["data"].items()
    }
    assert found[contract.READ_KEY].split() == [read_key(NEW), read_key(KEY_OF_OPERATOR)]
    assert found[contract.READ_TOKEN_KEY] == read_token(read_key(NEW), "release")
