"""`KubeClient` over HTTP: before it creates a child it reads the owner again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from sluice import contract
from sluice_operator.cluster.client import Object, OwnerDeleted
from sluice_operator.cluster.kinds import path
from sluice_operator.cluster.kube import KubeClient

OWNER: Object = {
    "apiVersion": contract.API_VERSION,
    "kind": contract.KIND,
    "metadata": {"name": "chat", "namespace": "ns", "uid": "1"},
}
CHILD: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "chat", "namespace": "ns"}}
OWNED: Object = CHILD | {"metadata": CHILD["metadata"] | {"resourceVersion": "1", "ownerReferences": [{"uid": "1"}]}}
OWNER_PATH = path(contract.KIND, "ns", "chat")
CHILD_PATH = path("ConfigMap", "ns", "chat")


@asynccontextmanager
async def api_server(objects: dict[str, Object]) -> AsyncIterator[tuple[KubeClient, list[str]]]:
    """An API server with these objects by path; it accepts every write and lists them."""
    writes: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            found = objects.get(request.path)
            return web.json_response(found or {"message": "not found"}, status=200 if found else 404)
        writes.append(f"{request.method} {request.path}")
        return web.json_response(OWNED)

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ApiClient(configuration=Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
        yield KubeClient(client), writes
    await runner.cleanup()


def owner(**metadata: str) -> Object:
    return OWNER | {"metadata": OWNER["metadata"] | metadata}


@pytest.mark.parametrize(
    ("live", "message"),
    [
        ({}, "LLMDeployment ns/chat is deleted"),
        ({OWNER_PATH: owner(uid="2")}, "LLMDeployment ns/chat is deleted and has been recreated"),
        ({OWNER_PATH: owner(deletionTimestamp="2026-11-21T09:00:00Z")}, "LLMDeployment ns/chat is being deleted"),
    ],
)
async def test_no_child_is_created_for_an_owner_that_is_deleted(live: dict[str, Object], message: str) -> None:
    async with api_server(live) as (cluster, writes):
        with pytest.raises(OwnerDeleted, match=f"^{message}$"):
            await cluster.apply(CHILD, owner=OWNER)
        with pytest.raises(OwnerDeleted, match=f"^{message}$"):
            await cluster.create(CHILD, owner=OWNER)
        assert writes == []


async def test_a_child_is_created_for_an_owner_that_exists() -> None:
    async with api_server({OWNER_PATH: OWNER}) as (cluster, writes):
        await cluster.apply(CHILD, owner=OWNER)
        await cluster.create(CHILD, owner=OWNER)
        assert writes == [f"PATCH {CHILD_PATH}", f"POST {path('ConfigMap', 'ns')}"]


async def test_a_child_that_exists_is_applied_without_another_read_of_the_owner() -> None:
    async with api_server({CHILD_PATH: OWNED}) as (cluster, writes):
        await cluster.apply(CHILD, owner=OWNER)
        assert writes == [f"PATCH {CHILD_PATH}"]
