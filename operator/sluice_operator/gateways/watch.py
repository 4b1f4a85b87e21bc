"""Finds the gateways by a watch of their Service's EndpointSlices, and follows the feed of each.

The operator calls, because it alone knows which of its processes leads, and it calls engines the same way. So a gateway
needs no right to write, and neither a new leader nor a new gateway leaves a stale count. The operator proves itself by the
token of the release.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp

from sluice import contract
from sluice_kube.api import collection
from sluice_kube.reflector import Object, Reflector
from sluice_operator.cluster.client import Key
from sluice_operator.gateways.feed import follow
from sluice_operator.gateways.held_requests import HeldRequests


class Gateways:
    """The gateways behind one Service; an empty `service` means that there are none."""

    def __init__(self, client: Any, namespace: str, service: str) -> None:
        """`client` is a connection of `sluice_kube.api.connect`."""
        self._client = client
        self._namespace = namespace
        self._service = service
        self._held = HeldRequests()

    def held(self, namespace: str, name: str) -> int | None:
        """Requests held until the LLMDeployment has a replica; None if no gateway is installed."""
        return self._held.held(Key(namespace, name)) if self._service else None

    async def run(self, wake: Callable[[Key], None], read_token: str = "") -> None:
        """Follow all gateways until cancelled; `wake` is called when the first request is held and when none is any more.

        read_token: of the release, without which no gateway tells what it holds.
        """
        self._held.on_change = wake
        if not self._service:
            await asyncio.Event().wait()
        async with reading(read_token) as session, _following() as following:

            def changed(slices: Mapping[tuple[str, str], Object]) -> None:
                gateways = gateways_in(slices)
                for gone in following.keys() - set(gateways.items()):
                    following.pop(gone).cancel()
                for gateway in set(gateways.items()) - following.keys():
                    following[gateway] = asyncio.create_task(follow(session, gateway, self._held))

            where = collection("discovery.k8s.io/v1", "endpointslices", self._namespace)
            selector = f"kubernetes.io/service-name={self._service}"
            await Reflector(self._client, where, changed, labels=selector).run()


def reading(read_token: str) -> aiohttp.ClientSession:
    """Return a session for the admin ports of gateways, which ask for the token."""
    headers = {"Authorization": f"Bearer {read_token}"} if read_token else {}
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), headers=headers)


@contextlib.asynccontextmanager
async def _following() -> AsyncIterator[dict[tuple[str, str], asyncio.Task[None]]]:
    """The tasks by (gateway, URL); cancelled at the end."""
    tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
    try:
        yield tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def gateways_in(slices: Mapping[tuple[str, str], Object]) -> dict[str, str]:
    """Pod name → admin URL, of all pods: one that starts or drains may hold requests too."""
    found: dict[str, str] = {}
    for _, piece in sorted(slices.items()):
        for endpoint in piece.get("endpoints") or ():
            target, addresses = endpoint.get("targetRef") or {}, endpoint.get("addresses") or ()
            if target.get("kind") == "Pod" and addresses:
                host = f"[{addresses[0]}]" if piece.get("addressType") == "IPv6" else addresses[0]
                found.setdefault(str(target["name"]), f"http://{host}:{contract.GATEWAY_ADMIN_PORT}")
    return found
