"""The admin token: derived, never read; its Secret is made and never changed."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sluice import contract
from sluice_operator.cluster.client import ClusterError, Object
from sluice_operator.reconcile.children.admin_token import KEY_BYTES, derive, make_key, operator_key
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.render import names
from tests.operator.fake_cluster import (
    KEY,
    KEY_OF_OPERATOR,
    Clock,
    Engines,
    FakeCluster,
    Killed,
    cluster_with,
    deployed,
    manifest,
    operator,
    pod,
    token_of,
)

NAMESPACE = "sluice-system"


@dataclass
class Guarded(FakeCluster):
    """An API server that refuses to show any Secret, as the chart's roles have it."""

    quota: bool = False  # no Secret can be made any more, whether it exists or not

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        if kind == "Secret":
            raise ClusterError("secrets is forbidden", status=403)
        return await super().get(kind, namespace, name)

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        if kind == "Secret":
            raise ClusterError("secrets is forbidden", status=403)
        return await super().list(kind, namespace, labels)

    async def create(self, made: Object, *, owner: Object | None = None) -> Object | None:
        if self.quota and made["kind"] == "Secret":
            raise ClusterError("secrets is forbidden: exceeded quota", status=403)
        return await super().create(made, owner=owner)


def guarded(*pods: Object) -> Guarded:
    cluster = Guarded()
    cluster.store.apply(manifest())
    return cluster if not pods else deployed(cluster, *pods)  # type: ignore[return-value]


def mounted(cluster: FakeCluster) -> str:
    """The Secret that the Deployment's pods mount as the admin token."""
    spec = cluster.deployment["spec"]["template"]["spec"]
    return str(next(v["secret"]["secretName"] for v in spec["volumes"] if v["name"] == "admin-token"))


def held(cluster: FakeCluster) -> dict[str, str]:
    """The admin tokens by their Secret's name."""
    found = cluster.store.list_all("Secret")
    return {s["metadata"]["name"]: base64.b64decode(s["data"][contract.ADMIN_TOKEN_KEY]).decode() for s in found}


async def test_no_secret_is_read_and_every_operator_sends_the_token_that_the_pods_mount() -> None:
    cluster, engines = guarded(pod("a")), Engines()
    for _ in range(2):  # the second is a successor without memory
        await operator(cluster, engines).reconcile(KEY)
    uid = cluster.resource["metadata"]["uid"]
    token = hmac.new(KEY_OF_OPERATOR, uid.encode(), hashlib.sha256).hexdigest()
    assert held(cluster) == {mounted(cluster): token}
    assert {sent for _, sent, _ in engines.patched} == {token}


@pytest.mark.parametrize("seconds", [1, 60])
async def test_a_deleted_secret_is_recreated_when_the_garbage_collector_has_deleted_its_sentinel(seconds: int) -> None:
    cluster, clock = guarded(), Clock()
    reconciler = operator(cluster, clock=clock)
    await reconciler.reconcile(KEY)
    before = held(cluster)
    clock.now += 15
    await reconciler.reconcile(KEY)
    for kind in ("Secret", "ConfigMap"):
        cluster.store.delete(kind, KEY.namespace, mounted(cluster))
    clock.now += seconds
    await reconciler.reconcile(KEY)
    assert held(cluster) == before != {}


async def test_a_secret_whose_sentinel_was_never_made_is_recreated_after_a_while() -> None:
    cluster, clock = guarded(), Clock()
    cluster.kill_after = 1
    with pytest.raises(Killed):
        await operator(cluster, clock=clock).reconcile(KEY)
    cluster.kill_after = None
    reconciler = operator(cluster, clock=clock)
    await reconciler.reconcile(KEY)
    before = held(cluster)
    assert cluster.store.get("ConfigMap", KEY.namespace, mounted(cluster)) is None
    cluster.store.delete("Secret", KEY.namespace, mounted(cluster))
    clock.now += 15
    await reconciler.reconcile(KEY)
    assert held(cluster) == before != {}
    assert cluster.store.get("ConfigMap", KEY.namespace, mounted(cluster)) is not None


async def test_a_foreign_config_map_in_the_place_of_a_sentinel_stays_and_stops_nothing() -> None:
    cluster, clock = guarded(), Clock()
    name = names.admin_secret(KEY.name, token_of(cluster))
    foreign = {"kind": "ConfigMap", "metadata": {"name": name, "namespace": KEY.namespace}, "data": {"a": "b"}}
    before = cluster.store.apply(foreign)
    reconciler = operator(cluster, clock=clock)
    for _ in range(4):
        await reconciler.reconcile(KEY)
        clock.now += 15
    assert cluster.store.get("ConfigMap", KEY.namespace, name) == before
    assert mounted(cluster) == name and cluster.condition("Ready")["reason"] != "Conflict"


async def test_a_sentinel_that_a_quota_rejects_stops_nothing() -> None:
    @dataclass
    class NoConfigMap(Guarded):
        """A quota of objects that is exhausted for sentinels."""

        async def create(self, made: Object, *, owner: Object | None = None) -> Object | None:
            if made["kind"] == "ConfigMap":
                raise ClusterError("configmaps is forbidden: exceeded quota", status=403)
            return await super().create(made, owner=owner)

    cluster = NoConfigMap()
    cluster.store.apply(manifest())
    await operator(cluster).reconcile(KEY)
    assert set(held(cluster)) == {mounted(cluster)}


async def test_an_exhausted_quota_does_not_stop_a_resource_whose_secret_exists() -> None:
    cluster = guarded()
    await operator(cluster).reconcile(KEY)
    cluster.quota = True
    cluster.edit(scaling={"minReplicas": 3, "maxReplicas": 4})
    await operator(cluster).reconcile(KEY)
    assert cluster.deployment["spec"]["replicas"] == 3


async def test_a_quota_that_rejects_the_first_secret_is_reported() -> None:
    cluster = guarded()
    cluster.quota = True
    with pytest.raises(ClusterError):
        await operator(cluster).reconcile(KEY)
    assert cluster.condition("Ready")["reason"] == "WriteRefused"
    assert cluster.deployment == {}


async def test_a_foreign_secret_of_an_older_name_is_neither_read_nor_mounted() -> None:
    cluster = cluster_with()
    foreign = {"kind": "Secret", "metadata": {"name": "chat-admin", "namespace": KEY.namespace}}
    cluster.store.create(foreign | {"data": {"token": base64.b64encode(b"known to its writer").decode()}})
    await operator(cluster).reconcile(KEY)
    assert mounted(cluster) != "chat-admin"
    assert held(cluster)[mounted(cluster)] == token_of(cluster)


async def test_another_key_rolls_the_pods_to_another_secret() -> None:
    cluster = guarded()
    await operator(cluster).reconcile(KEY)
    before = mounted(cluster)
    context = replace(operator(cluster).context, token_key=make_key())
    await Reconciler(context).reconcile(KEY)
    assert mounted(cluster) != before and set(held(cluster)) == {before, mounted(cluster)}


def test_tokens_differ_by_resource_and_by_key() -> None:
    one, other = make_key(), make_key()
    assert len({derive(one, "a"), derive(one, "b"), derive(other, "a"), derive(other, "b")}) == 4
    assert derive(one, "a") == derive(one, "a")


@pytest.mark.parametrize(("key", "uid"), [(b"", "u"), (b"k" * (KEY_BYTES - 1), "u"), (b"k" * KEY_BYTES, "")])
def test_without_a_key_or_a_uid_there_is_no_token(key: bytes, uid: str) -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        derive(key, uid)


async def test_the_operators_key_is_created_once_and_read_by_later_processes() -> None:
    cluster = FakeCluster()
    first = await operator_key(cluster, NAMESPACE, "sluice-key")
    assert len(first) == KEY_BYTES and await operator_key(cluster, NAMESPACE, "sluice-key") == first
    assert cluster.writes == ["create Secret"]


async def test_two_operators_that_start_together_end_with_one_key() -> None:
    @dataclass
    class Racing(FakeCluster):
        """Another operator makes the key between our look and our write."""

        theirs: list[bytes] = field(default_factory=list)

        async def create(self, made: Object, *, owner: Object | None = None) -> Object | None:
            if not self.theirs:
                self.theirs.append(b"")
                self.theirs[0] = await operator_key(self, NAMESPACE, "sluice-key")
            return await super().create(made, owner=owner)

    cluster = Racing()
    assert await operator_key(cluster, NAMESPACE, "sluice-key") == cluster.theirs[0]


@pytest.mark.parametrize("data", [{}, {"key": "not base64!"}, {"key": base64.b64encode(b"short").decode()}])
async def test_an_unusable_key_is_named_with_a_next_step(data: dict[str, Any]) -> None:
    cluster = FakeCluster()
    cluster.store.create({"kind": "Secret", "metadata": {"name": "k", "namespace": NAMESPACE}, "data": data})
    with pytest.raises(ClusterError, match=f"Secret {NAMESPACE}/k has no 'key'.*delete it"):
        await operator_key(cluster, NAMESPACE, "k")


def test_a_key_is_not_shown_with_the_context() -> None:
    assert "the key that" not in repr(operator(cluster_with()).context)
