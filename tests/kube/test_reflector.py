"""The reflector over HTTP, against a server that ends, breaks and refuses watches as an API server does."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from sluice_kube.api import collection
from sluice_kube.reflector import Reflector

PATH = collection("discovery.k8s.io/v1", "endpointslices", "ns")


def thing(name: str, version: int, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "resourceVersion": str(version), "managedFields": [{"manager": "x"}]}
    return {"metadata": metadata} | fields


def event(kind: str, name: str, version: int, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "object": thing(name, version, **fields)}


@dataclass
class ApiServer:
    """Each list answers with the next of `pages`; each watch sends the next of `watches` and ends, the last one stays open.

    A status in place of either is the answer.
    """

    pages: list[Any]
    watches: list[Any]
    asked: list[str] = field(default_factory=list)
    at_rest: asyncio.Event = field(default_factory=asyncio.Event)  # the last watch is open

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert request.path == PATH
        query = request.query
        if "watch" not in query:
            self.asked.append(f"list {query.get('continue', '')}".strip())
            return self._page(self.pages.pop(0))
        assert query["allowWatchBookmarks"] == "true" and 270 <= int(query["timeoutSeconds"]) <= 330
        self.asked.append(f"watch {query['resourceVersion']}")
        found = self.watches.pop(0)
        if isinstance(found, int):
            return web.json_response({"message": "no"}, status=found)
        response = web.StreamResponse()
        await response.prepare(request)
        for one in found:
            await response.write(json.dumps(one).encode() + b"\n")
        if not self.watches:
            self.at_rest.set()
            await asyncio.Event().wait()
        return response

    @staticmethod
    def _page(found: Any) -> web.Response:
        if isinstance(found, int):
            return web.json_response({"message": "no"}, status=found)
        version, items, more = found
        return web.json_response({"metadata": {"resourceVersion": str(version), "continue": more}, "items": items})


@dataclass
class Seen:
    """What the mirror held at each change, and how long it slept."""

    changes: list[dict[str, Any]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    changed_once: asyncio.Event = field(default_factory=asyncio.Event)

    refused: dict[str, Any] | None = None  # the state at which the reader raises

    def changed(self, objects: Mapping[tuple[str, str], Any]) -> None:
        found = {name: each.get("at") for (_, name), each in objects.items()}
        if found == self.refused:
            raise ValueError("refused")
        self.changes.append(found)
        self.changed_once.set()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@asynccontextmanager
async def mirrored(server: ApiServer, refused: dict[str, Any] | None = None) -> AsyncIterator[tuple[Reflector, Seen]]:
    """A reflector that has come to the last watch of the server."""
    runner = web.ServerRunner(web.Server(server.answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    seen = Seen(refused=refused)
    async with ApiClient(configuration=Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
        reflector = Reflector(client, PATH, seen.changed, sleep=seen.sleep)
        running = asyncio.create_task(reflector.run())
        async with asyncio.timeout(10):
            await server.at_rest.wait()
            await seen.changed_once.wait()
        yield reflector, seen
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await runner.cleanup()


async def until(seen: Seen, last: dict[str, Any]) -> None:
    async with asyncio.timeout(10):
        while not seen.changes or seen.changes[-1] != last:
            seen.changed_once.clear()
            await seen.changed_once.wait()


async def test_events_change_what_the_list_has_found() -> None:
    server = ApiServer(
        pages=[(5, [thing("a", 1, at=1)], "next"), (5, [thing("b", 2, at=2)], None)],
        watches=[[event("ADDED", "c", 6, at=3), event("MODIFIED", "a", 7, at=4), event("DELETED", "b", 8)]],
    )
    async with mirrored(server) as (reflector, seen):
        await until(seen, {"a": 4, "c": 3})
        assert reflector.synced
        assert all("managedFields" not in each["metadata"] for each in reflector.objects.values())
        assert seen.changes == [{"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, {"a": 4, "b": 2, "c": 3}, {"a": 4, "c": 3}]
        assert server.asked == ["list", "list next", "watch 5"]


async def test_a_watch_that_ends_goes_on_from_the_newest_version_without_a_list() -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "40"}}}
    server = ApiServer(pages=[(5, [], None)], watches=[[event("ADDED", "a", 6, at=1)], [bookmark], []])
    async with mirrored(server) as (_, seen):
        assert server.asked == ["list", "watch 5", "watch 6", "watch 40"]
        assert seen.changes == [{}, {"a": 1}]
        assert seen.slept == []


async def test_a_version_that_is_gone_leads_to_one_list_and_what_was_deleted_meanwhile_goes() -> None:
    expired = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
    server = ApiServer(
        pages=[(5, [thing("a", 1, at=1)], None), (50, [thing("b", 9, at=2)], None), (70, [thing("b", 9, at=3)], None)],
        watches=[[event("ADDED", "c", 6, at=1), expired], 410, []],
    )
    async with mirrored(server) as (_, seen):
        await until(seen, {"b": 3})
        assert server.asked == ["list", "watch 5", "list", "watch 50", "list", "watch 70"]
        assert seen.changes == [{"a": 1}, {"a": 1, "c": 1}, {"b": 2}, {"b": 3}]
        assert len(seen.slept) == 1, "a version that is gone before any event must not become a loop of lists"


async def test_what_was_seen_last_stays_while_the_api_server_fails() -> None:
    failures = [500, 429, 403, 503]
    server = ApiServer(
        pages=[(5, [thing("a", 1, at=1)], None)], watches=[*failures, [], [event("ADDED", "b", 6, at=2)]]
    )
    async with mirrored(server) as (_, seen):
        await until(seen, {"a": 1, "b": 2})
        assert server.asked == ["list", *["watch 5"] * 6]
        assert seen.changes == [{"a": 1}, {"a": 1, "b": 2}]
        assert len(seen.slept) == 5 and all(0.0 < seconds <= 15.0 for seconds in seen.slept)


async def test_the_first_list_is_repeated_until_it_succeeds() -> None:
    server = ApiServer(pages=[403, 404, (5, [thing("a", 1, at=1)], None)], watches=[[]])
    async with mirrored(server) as (reflector, seen):
        assert reflector.synced and seen.changes == [{"a": 1}]
        assert server.asked == ["list", "list", "list", "watch 5"]


async def test_an_object_of_a_megabyte_is_an_event_as_any_other() -> None:
    server = ApiServer(
        pages=[(5, [], None)], watches=[[event("ADDED", "a", 6, at=1, large="x" * 2**20), event("ADDED", "b", 7, at=2)]]
    )
    async with mirrored(server) as (_, seen):
        await until(seen, {"a": 1, "b": 2})
        assert server.asked == ["list", "watch 5"] and seen.slept == []


@pytest.mark.parametrize(
    "broken", [{"type": "ADDED"}, {"object": {}}, [], {"type": "ADDED", "object": {"metadata": {}}}]
)
async def test_an_event_that_cannot_be_read_leads_to_a_new_list_and_ends_nothing(broken: Any) -> None:
    server = ApiServer(
        pages=[(5, [thing("a", 1, at=1)], None), (8, [thing("a", 7, at=2)], None)], watches=[[broken], []]
    )
    async with mirrored(server) as (_, seen):
        await until(seen, {"a": 2})
        assert server.asked == ["list", "watch 5", "list", "watch 8"] and len(seen.slept) == 1


async def test_a_reader_that_raises_is_logged_and_gets_the_next_state(caplog: pytest.LogCaptureFixture) -> None:
    server = ApiServer(pages=[(5, [thing("a", 1, at=0)], None), (5, [thing("a", 1, at=1)], None)], watches=[[]])
    async with mirrored(server, refused={"a": 0}) as (_, seen):
        await until(seen, {"a": 1})
        assert "refused" in caplog.text and len(seen.slept) == 1
