"""An API server on this machine that answers from a table, for commands that connect by themselves. It runs in a thread.

Each answer is an object, a text, or an HTTP status. It records what was asked, so that a test can prove what was not.
"""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from sluice import contract


@dataclass
class ApiServer:
    """`objects` by path; a path with a list of items is a collection. `denied`: (group/resource, verb) of access reviews."""

    objects: dict[str, Any] = field(default_factory=dict)
    denied: set[tuple[str, str]] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    tokens: dict[str, str] = field(
        default_factory=dict
    )  # path → the token of reads that what is behind the proxy wants
    port: int = 0

    def serve(self, path: str, *items: Mapping[str, Any]) -> None:
        """Answer a collection with these items, and each item at its own path."""
        self.objects[path] = {"metadata": {}, "items": [dict(each) for each in items]}
        for each in items:
            self.objects[f"{path}/{each['metadata']['name']}"] = dict(each)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path_qs}")
        if request.path.endswith("/selfsubjectaccessreviews"):
            return self._reviewed(json.loads(await request.text()))
        found = self.objects.get(request.path, 404)
        wanted = self.tokens.get(request.path)
        if wanted is not None and request.headers.get(contract.HEADER_READ_TOKEN) != wanted:
            found = 401
        if isinstance(found, int):
            message = f"the server answers {found}"
            return web.json_response({"kind": "Status", "message": message}, status=found)
        if isinstance(found, str):
            return web.Response(text=found)
        if "items" in found and (selector := request.query.get("labelSelector")):
            found = found | {"items": [each for each in found["items"] if _is_selected(each, selector)]}
        return web.json_response(found)

    def _reviewed(self, review: dict[str, Any]) -> web.Response:
        wanted = review["spec"]["resourceAttributes"]
        resource = f"{wanted['group']}/{wanted['resource']}" + ("/" * bool(wanted.get("subresource")))
        resource += wanted.get("subresource", "")
        return web.json_response({"status": {"allowed": (resource, wanted["verb"]) not in self.denied}}, status=201)

    async def connect(self) -> ApiClient:
        """In place of `sluice_kube.api.connect`."""
        return ApiClient(configuration=Configuration(host=f"http://127.0.0.1:{self.port}"))


def _is_selected(thing: Mapping[str, Any], selector: str) -> bool:
    wanted = dict(pair.split("=") for pair in selector.split(","))
    return wanted.items() <= (thing["metadata"].get("labels") or {}).items()


@contextmanager
def running() -> Iterator[ApiServer]:
    """A server until the end of the block."""
    server, loop, up = ApiServer(), asyncio.new_event_loop(), threading.Event()
    runners: list[web.ServerRunner] = []

    async def start() -> None:
        runner = web.ServerRunner(web.Server(server.answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.port = runner.addresses[0][1]
        up.set()

    thread = threading.Thread(target=lambda: (loop.run_until_complete(start()), loop.run_forever()))
    thread.start()
    assert up.wait(30)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runners[0].cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
