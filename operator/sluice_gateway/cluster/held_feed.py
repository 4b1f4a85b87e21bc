"""`GET /held` on the admin port: the numbers of held requests, sent when they change, for as long as the operator reads.

The operator connects to every gateway and adds up what they hold, so the gateway needs no right in the cluster to tell it,
and nothing outlives it: an operator that comes later reads the present state first, and a lost gateway holds 0. The feed
names the resources of all namespaces, so only a reader with the token of the release gets it.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from sluice import contract

LEAST_GAP: Final = 0.2  # seconds between two lines


class HeldFeed:
    """Tells all readers of each change."""

    def __init__(
        self, counts: Callable[[], Mapping[str, int]], heartbeat: float = contract.HELD_HEARTBEAT_SECONDS
    ) -> None:
        """`counts()` has the held requests by LLMDeployment, "namespace/name", without zeros."""
        self._counts = counts
        self._heartbeat = heartbeat
        self._readers: set[asyncio.Event] = set()

    def changed(self) -> None:
        """A count has become 0 or is no longer 0."""
        for reader in self._readers:
            reader.set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Send one JSON object per line, now and after each change, until the reader goes."""
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
        await response.prepare(request)
        reader = asyncio.Event()
        self._readers.add(reader)
        try:
            while True:
                reader.clear()
                await response.write(json.dumps(self._counts()).encode() + b"\n")
                await asyncio.sleep(LEAST_GAP)
                await self._change(reader)
        except ConnectionResetError:  # the reader is gone
            return response
        finally:
            self._readers.discard(reader)

    async def _change(self, reader: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._heartbeat):
                await reader.wait()
        except TimeoutError:
            return
