"""Mirrors one collection of objects: one list, then a watch from its version on. What was seen last stays in force.

    list ──version──► watch ──events, bookmarks──► watch again from the newest version ──410 Gone──► list

The API server ends each watch after some minutes, and a watch without a bookmark for longer than one is dead. Errors back
off; they never empty the mirror. Only a version that the server no longer has leads to another list.
"""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from kubernetes.aio.client import ApiClient, ApiException

from sluice_kube.api import cluster_error, dynamic_client, request, transport
from sluice_kube.errors import ClusterError

Object = dict[str, Any]
Name = tuple[str, str]  # namespace and name

PAGE: Final = 500
WATCH_SECONDS: Final = 300.0  # after which the server ends a watch, jittered by a tenth
SILENT_SECONDS: Final = 75.0  # without a byte: bookmarks come about once a minute
FIRST_BACKOFF: Final = 0.5  # seconds; doubles with each failure
MOST_BACKOFF: Final = 15.0
GONE: Final = 410

log = logging.getLogger(__name__)


class Reflector:
    """`objects` is the mirror. `on_change(objects)` is called after the list and after each event."""

    def __init__(
        self,
        client: ApiClient,
        path: str,
        on_change: Callable[[Mapping[Name, Object]], None],
        *,
        labels: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`path` is that of the collection, `labels` a selector."""
        self.objects: dict[Name, Object] = {}
        self.synced = False  # True once a list has succeeded
        self._dynamic = dynamic_client(client)
        self._path = path
        self._labels = labels or None
        self._on_change = on_change
        self._sleep = sleep
        self._version = ""  # the newest resourceVersion; empty: list first
        self._fault = ""

    async def run(self) -> None:
        """Mirror until cancelled."""
        failures = 0
        while True:
            try:
                if not self._version:
                    await self._list()
                delivered = await self._watch()
            except ClusterError as error:
                self._log(error)
                failures += 1
            except Exception:  # an object or event that cannot be read must not end the watch for good
                log.exception("%s is listed again", self._path)
                self._version = ""
                failures += 1
            else:
                failures = 0 if delivered else failures + 1
            if failures:
                await self._sleep(
                    min(MOST_BACKOFF, FIRST_BACKOFF * 2 ** min(failures - 1, 16)) * random.uniform(0.5, 1)
                )

    async def _list(self) -> None:
        found: dict[Name, Object] = {}
        more: str | None = None
        while True:
            page = await request(
                self._dynamic, "get", self._path, label_selector=self._labels, limit=PAGE, _continue=more
            )
            found |= {_name(each): _slim(each) for each in page.get("items") or ()}
            metadata = page.get("metadata") or {}
            more = metadata.get("continue") or None
            if more is None:
                break
        self._version = str(metadata.get("resourceVersion", ""))
        self._reached()
        self.objects, self.synced = found, True
        self._on_change(found)

    async def _watch(self) -> int:
        """Follow the changes until the server ends the watch; returns the number of its events. Raises ClusterError."""
        delivered = 0
        try:
            async for event in self._events():
                if event["type"] == "ERROR":
                    self._end(event["object"])
                    return delivered
                self._reached()
                delivered += 1
                self._apply(event["type"], event["object"])
        except ClusterError as error:
            if error.status != GONE:
                raise
            self._end({"code": GONE})
        return delivered

    async def _events(self) -> AsyncIterator[Any]:
        what = f"WATCH {self._path}"
        parameters = {
            "label_selector": self._labels,
            "resource_version": self._version,
            "timeout_seconds": round(WATCH_SECONDS * random.uniform(0.9, 1.1)),
            "watch": "true",
            "query_params": [("allowWatchBookmarks", "true")],
        }
        timeout = transport.aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=SILENT_SECONDS)
        try:
            response = await self._dynamic.request(
                "get", self._path, serialize=False, _request_timeout=timeout, **parameters
            )
            try:
                async for line in _lines(response.content):
                    yield json.loads(line)
            finally:
                response.close()
        except (ApiException, transport.aiohttp.ClientError, OSError, ValueError) as error:
            raise cluster_error(what, error) from error

    def _apply(self, kind: str, thing: Object) -> None:
        self._version = str(thing["metadata"]["resourceVersion"])
        if kind == "BOOKMARK":
            return
        if kind == "DELETED":
            self.objects.pop(_name(thing), None)
        else:
            self.objects[_name(thing)] = _slim(thing)
        self._on_change(self.objects)

    def _end(self, status: Object) -> None:
        """Raises ClusterError unless the version is too old."""
        code = int(status.get("code") or 0)
        if code != GONE:
            raise ClusterError(f"WATCH {self._path}: {code} {status.get('message', '')}", status=code)
        log.info("%s is listed again: the API server no longer has version %s", self._path, self._version)
        self._version = ""

    def _log(self, error: ClusterError) -> None:
        """Log a fault once, and not again until the API server has answered."""
        if str(error) != self._fault:
            log.warning("%s; %s", error, "the last state stays in force" if self.synced else "retrying")
        self._fault = str(error)

    def _reached(self) -> None:
        if self._fault:
            log.info("%s: the API server answers again", self._path)
        self._fault = ""


async def _lines(content: Any) -> AsyncIterator[bytes]:
    """The lines of a response. aiohttp's own `readline` refuses one of more than 128 KiB, and an object may have 1.5 MB."""
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            yield b"".join((*parts, end))
            parts.clear()
        parts.append(rest)


def _slim(thing: Object) -> Object:
    """The object without the record of its writers, which is often the larger half."""
    thing["metadata"].pop("managedFields", None)
    return thing


def _name(thing: Object) -> Name:
    return str(thing["metadata"].get("namespace", "")), str(thing["metadata"]["name"])
