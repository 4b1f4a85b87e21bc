"""An API server in memory, over HTTP, that authorizes each request by permissions as RBAC does.

It records which permission allowed a request and what it refused. Objects are those of the local cluster's store.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from sluice_operator.cluster.kinds import GROUPS
from sluice_operator.cluster.local.store import ObjectStore
from tests.operator.security.permissions import Attributes, Permission

Object = dict[str, Any]

KINDS: Final = {(group, plural): kind for kind, (group, _, plural) in GROUPS.items()}
KINDS["discovery.k8s.io", "endpointslices"] = "EndpointSlice"
VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass
class AuthorizingApiServer:
    """`needed` fills with permissions that alone allowed a request, `refused` with requests that none allowed.

    Discovery is open to every client, as in a cluster.
    """

    permissions: frozenset[Permission]
    store: ObjectStore = field(default_factory=lambda: ObjectStore(lambda: 1_790_000_000.0))
    needed: set[Permission] = field(default_factory=set)
    refused: set[Attributes] = field(default_factory=set)
    url: str = ""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _requests: set[tuple[str, str]] = field(default_factory=set)  # (verb, resource) and (verb, namespace/resource)

    async def wait_for(self, *requests: tuple[str, str]) -> None:
        """Return once each (verb, resource) was requested, allowed or not."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._requests.issuperset(requests))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["AuthorizingApiServer"]:
        """Serve at `url` while the context lasts."""
        runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield self
        await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if (found := _discovery(request.path)) is not None:
            return web.json_response(found)
        attributes, subresource = _attributes(request)
        body = json.loads(await request.text() or "{}")
        kind = KINDS[attributes.group, attributes.resource.partition("/")[0]]
        where = (kind, attributes.namespace, attributes.name)
        needed = [attributes]
        if attributes.verb == "patch" and not subresource and self.store.get(*where) is None:  # apply creates
            needed.append(Attributes(attributes.namespace, attributes.group, attributes.resource, "create"))
        allowed = [self._authorize(each) for each in needed]
        async with self._changed:
            place = f"{attributes.namespace}/{attributes.resource}"
            self._requests |= {(attributes.verb, attributes.resource), (attributes.verb, place)}
            self._changed.notify_all()
        if not all(allowed):
            return _status(403, f"{attributes.verb} {attributes.resource} is forbidden")
        if attributes.verb == "watch":
            return await _open_watch(request)
        return self._carry_out(attributes.verb, where, body, subresource)

    def _authorize(self, attributes: Attributes) -> bool:
        matching = [each for each in self.permissions if attributes.is_allowed_by(each)]
        if not matching:
            self.refused.add(attributes)
        if len(matching) == 1:
            self.needed.update(matching)
        return bool(matching)

    def _carry_out(self, verb: str, where: tuple[str, str, str], body: Any, subresource: str) -> web.Response:
        kind, namespace, name = where
        judged = (body if verb == "patch" and isinstance(body, dict) else {}).get("metadata", {})
        judged = body.get("preconditions", {}) if verb == "delete" else judged
        version = ((self.store.get(*where) or {}).get("metadata") or {}).get("resourceVersion")
        if judged.get("resourceVersion", version) != version:
            return _status(409, "the object has been modified")
        match verb:
            case "list":
                items = self.store.list(kind, namespace, {})
                return web.json_response({"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": items})
            case "create":
                body["metadata"].setdefault("name", f"{body['metadata'].get('generateName', '')}x")
                done = self.store.create(body)
                return _status(409, "it exists") if done is None else web.json_response(done, status=201)
            case "delete":
                self.store.delete(*where)
                return web.json_response({})
            case "patch" if subresource == "status":
                self.store.set_status(*where, body[-1]["value"])
            case "patch" | "update":
                self.store.apply(body)
        live = self.store.get(*where)
        return _status(404, f"{kind} {namespace}/{name} not found") if live is None else web.json_response(live)


def _attributes(request: web.Request) -> tuple[Attributes, str]:
    parts = request.path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" else ""
    rest = parts[3:] if group else parts[2:]
    if rest[0] == "namespaces" and len(rest) > 1:  # a namespace itself is authorized as an object within it
        namespace, rest = rest[1], rest[2:] or rest
    else:
        namespace = ""
    resource, name, subresource = (*rest, "", "")[:3]
    reads = "watch" if "watch" in request.query else "get" if name else "list"
    verb = VERBS.get(request.method, reads)
    full = f"{resource}/{subresource}" if subresource else resource
    return Attributes(namespace, group, full, verb, name), subresource


def _discovery(path: str) -> Object | None:
    """What Kopf reads before it watches: versions, groups and the resources of each."""
    groups = sorted({(group, version) for group, version, _ in GROUPS.values() if group})
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        return {
            "groups": [
                {"name": group, "preferredVersion": {"version": version}, "versions": [{"version": version}]}
                for group, version in groups
            ]
        }
    if path != "/api/v1" and path not in {f"/apis/{group}/{version}" for group, version in groups}:
        return None
    group = path.split("/")[2] if path.startswith("/apis") else ""
    verbs = ["get", "list", "watch", "patch"]
    return {
        "resources": [
            {
                "name": plural,
                "singularName": kind.lower(),
                "kind": kind,
                "namespaced": kind != "Namespace",
                "verbs": verbs,
            }
            for (its_group, plural), kind in KINDS.items()
            if its_group == group
        ]
    }


async def _open_watch(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.Event().wait()
    return response


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)
