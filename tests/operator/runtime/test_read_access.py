"""Reads of the operator's own port with the release's token, and how an operator that does not lead learns it."""

import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from sluice import contract
from sluice_operator.cluster.client import ClusterError, Object
from sluice_operator.metrics import OperatorMetrics
from sluice_operator.reconcile.children.admin_token import operator_key
from sluice_operator.runtime.health import Health
from sluice_operator.runtime.read_access import ReleaseToken, release_token, share
from sluice_operator.settings import Settings
from tests.operator.fake_cluster import KEY_OF_OPERATOR, FakeCluster

TOKEN = release_token(KEY_OF_OPERATOR)
SETTINGS = Settings(pod_namespace="sluice-system")


@asynccontextmanager
async def listening(read_token: Callable[[], str] | None) -> AsyncIterator[str]:
    """The URL of an operator's port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    health = Health(lambda: "", OperatorMetrics(), has_profiler=True, read_token=read_token)
    await health.start(port)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await health.close()


async def status(url: str, headers: dict[str, str]) -> tuple[int, str]:
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("path", ["/metrics", "/debug/profile?seconds=0"])
async def test_reads_need_the_token_and_probes_do_not(path: str) -> None:
    async with listening(lambda: TOKEN) as url:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {TOKEN}"}):
            code, text = await status(url + path, headers)
            assert code == 401 and "Authorization: Bearer" in text and TOKEN not in text
        for headers in ({"Authorization": f"Bearer {TOKEN}"}, {contract.HEADER_READ_TOKEN: TOKEN}):
            assert (await status(url + path, headers))[0] in (200, 400)
        assert await status(f"{url}/healthz", {}) == (200, "ok\n")


async def test_before_the_token_is_known_nobody_reads_and_without_the_option_all_do() -> None:
    async with listening(lambda: "") as url:
        for headers in ({}, {"Authorization": "Bearer "}, {contract.HEADER_READ_TOKEN: ""}):
            assert (await status(f"{url}/metrics", headers))[0] == 401
    async with listening(None) as url:
        assert (await status(f"{url}/metrics", {}))[0] == 200


async def test_an_operator_without_the_lease_waits_for_the_key_and_makes_none() -> None:
    cluster, release, pauses = FakeCluster(), ReleaseToken(), []

    async def until_the_leader_has_made_it(seconds: float) -> None:
        pauses.append(seconds)
        assert release.value == "" and cluster.writes == []
        await operator_key(cluster, SETTINGS.pod_namespace, SETTINGS.key_secret)

    await release.learn(cluster, SETTINGS, until_the_leader_has_made_it)
    key = await operator_key(cluster, SETTINGS.pod_namespace, SETTINGS.key_secret)
    assert release.value == release_token(key) and pauses == [5.0]


async def test_a_secret_that_cannot_be_written_is_logged_once_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Refusing(FakeCluster):
        refusals = 2

        async def create(self, manifest: Object, *, owner: Object | None = None) -> Object | None:
            if self.refusals:
                self.refusals -= 1
                raise ClusterError("secrets is forbidden", status=403)
            return await super().create(manifest, owner=owner)

    cluster = Refusing()

    async def no_pause(_: float) -> None:
        return None

    with caplog.at_level(logging.WARNING):
        await share(cluster, SETTINGS, KEY_OF_OPERATOR, no_pause)
    assert [each.getMessage() for each in caplog.records] == [
        "gateways and Prometheus have no token of reads: secrets is forbidden"
    ]
    assert cluster.store.get("Secret", SETTINGS.pod_namespace, SETTINGS.read_secret) is not None
