"""Reads with a token (`metrics.auth`): its Secret, the pods that ask for it, who sends it, and that no fleet moves by it."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from sluice import contract
from sluice.auth.read_tokens import read_key, read_token
from sluice_operator.autoscaler.values import EngineSample
from sluice_operator.cluster.client import ClusterError, Endpoint, Object
from sluice_operator.reconcile.children.admin_token import make_key, share_reads
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.settings import PodMonitorSettings
from tests.foreign_schemas import faults
from tests.operator.fake_cluster import (
    KEY,
    KEY_OF_OPERATOR,
    Clock,
    Engines,
    FakeCluster,
    cluster_with,
    operator,
    pod,
    token_of,
)
from tests.operator.reconcile.test_admin_token import NAMESPACE, Guarded, guarded, held, mounted


class Reading(Engines):
    """Engines that remember the token of each read."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: set[str] = set()

    async def scrape(self, endpoint: Endpoint) -> EngineSample:
        self.tokens.add(endpoint.read_token)
        return await super().scrape(endpoint)


def operator_with(auth: str, cluster: FakeCluster, engines: Engines | None = None, key: bytes = b"") -> Reconciler:
    context = operator(cluster, engines).context
    settings = replace(context.settings, metrics_auth=auth, pod_monitor=PodMonitorSettings())
    return Reconciler(replace(context, settings=settings, token_key=key or KEY_OF_OPERATOR))


def template(cluster: FakeCluster) -> Object:
    spec: Object = cluster.deployment["spec"]["template"]["spec"]
    return spec


def read_volume(cluster: FakeCluster) -> str:
    """The Secret of the token of reads that the pods mount; empty if they mount none."""
    volumes = template(cluster)["volumes"]
    return "".join(each["secret"]["secretName"] for each in volumes if each["name"] == contract.READ_VOLUME)


def asks(cluster: FakeCluster) -> bool:
    """Whether the engines ask for the token that is mounted."""
    file = f"--read-token-file={contract.READ_TOKEN_MOUNT}/{contract.READ_TOKEN_KEY}"
    mounts = {each["mountPath"] for each in template(cluster)["containers"][0]["volumeMounts"]}
    assert (contract.READ_TOKEN_MOUNT in mounts) == bool(read_volume(cluster))
    return file in template(cluster)["containers"][0]["args"]


def expected(cluster: FakeCluster, key: bytes = KEY_OF_OPERATOR) -> str:
    return read_token(read_key(key), str(cluster.resource["metadata"]["uid"]))


async def test_the_pods_ask_for_a_token_of_their_own_that_is_not_the_admin_token() -> None:
    cluster = guarded()
    await operator_with("token", cluster).reconcile(KEY)
    assert asks(cluster)
    assert held(cluster) == {mounted(cluster): token_of(cluster), read_volume(cluster): expected(cluster)}
    assert expected(cluster) != token_of(cluster)


async def test_by_default_no_pod_asks_and_there_is_no_secret_of_reads() -> None:
    cluster = guarded()
    await operator_with("policy", cluster).reconcile(KEY)
    assert not asks(cluster) and read_volume(cluster) == ""
    assert set(held(cluster)) == {mounted(cluster)}


@pytest.mark.parametrize("auth", ["policy", "token"])
async def test_the_operator_sends_the_token_in_both_modes(auth: str) -> None:
    """So pods that still ask after a change of the value, and those that do not yet, are both scraped."""
    cluster, engines = cluster_with(), Reading()
    await operator_with(auth, cluster).reconcile(KEY)
    cluster.pods = [pod("a")]
    await operator_with(auth, cluster, engines).reconcile(KEY)
    assert engines.tokens == {expected(cluster)}


async def test_prometheus_gets_the_token_from_the_secret_that_the_pods_mount() -> None:
    cluster = cluster_with()
    cluster.optional_kinds.add("PodMonitor")
    await operator_with("token", cluster).reconcile(KEY)
    monitor = cluster.store.get("PodMonitor", KEY.namespace, "chat-engine") or {}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    credentials = {"name": read_volume(cluster), "key": contract.READ_TOKEN_KEY}
    assert endpoint["authorization"] == {"credentials": credentials}
    made = {name: monitor[name] for name in ("apiVersion", "kind", "metadata", "spec")}
    assert faults(made, "podmonitors") == []
    await operator_with("policy", cluster).reconcile(KEY)
    monitor = cluster.store.get("PodMonitor", KEY.namespace, "chat-engine") or {}
    assert "authorization" not in monitor["spec"]["podMetricsEndpoints"][0]


@pytest.mark.parametrize(("before", "after"), [("policy", "token"), ("token", "policy")])
async def test_a_change_of_the_value_moves_no_running_fleet_and_is_offered_as_an_upgrade(
    before: str, after: str
) -> None:
    cluster, clock = cluster_with(), Clock()
    await operator_with(before, cluster).reconcile(KEY)
    cluster.pods = [pod("a")]
    reconciler = operator_with(before, cluster)
    for _ in range(2):
        await reconciler.reconcile(KEY)
        clock.now += 5
    running = template(cluster)
    for _ in range(2):
        await operator_with(after, cluster).reconcile(KEY)
    assert template(cluster) == running
    assert cluster.condition("UpgradeAvailable")["status"] == "True"


async def test_another_key_rolls_the_pods_to_both_other_secrets() -> None:
    cluster, key = guarded(), make_key()
    await operator_with("token", cluster).reconcile(KEY)
    before = {mounted(cluster), read_volume(cluster)}
    await operator_with("token", cluster, key=key).reconcile(KEY)
    now = {mounted(cluster), read_volume(cluster)}
    assert not before & now and set(held(cluster)) == before | now
    assert held(cluster)[read_volume(cluster)] == expected(cluster, key)


async def test_a_quota_that_rejects_what_exists_already_stops_nothing() -> None:
    cluster = guarded()
    await operator_with("token", cluster).reconcile(KEY)
    cluster.quota = True
    await operator_with("token", cluster).reconcile(KEY)
    assert cluster.condition("Ready")["reason"] != "WriteRefused"


def entries(cluster: FakeCluster, name: str) -> dict[str, str]:
    secret: dict[str, Any] = cluster.store.get("Secret", NAMESPACE, name) or {}
    return {entry: base64.b64decode(value).decode() for entry, value in secret["data"].items()}


async def test_the_secret_of_the_release_follows_the_operators_key_and_is_written_only_then() -> None:
    cluster = FakeCluster()
    for key in (KEY_OF_OPERATOR, make_key()):
        for _ in range(2):
            await share_reads(cluster, NAMESPACE, "read", key)
        found = entries(cluster, "read")
        assert found == {"key": read_key(key), "token": read_token(read_key(key), "release")}
        assert key.hex() not in str(found)
    assert cluster.writes == ["create Secret", "apply Secret read"]


async def test_an_operator_that_may_not_write_the_secret_raises_what_the_server_says() -> None:
    with pytest.raises(ClusterError, match="forbidden"):
        await share_reads(Guarded(), NAMESPACE, "read", KEY_OF_OPERATOR)
