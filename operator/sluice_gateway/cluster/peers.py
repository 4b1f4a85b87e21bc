"""How many gateways share the rates of the key file, and the zone of this one: from the endpoints of their own Service, by
a watch.

A gateway that starts or drains gets no new connections, so it does not count.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from sluice_gateway.cluster.endpoints import SLICES
from sluice_kube.api import collection
from sluice_kube.reflector import Reflector

log = logging.getLogger("sluice.gateway")


def ready_gateways(slices: Iterable[Mapping[str, Any]]) -> int:
    """Number of ready pods in the slices, each counted once."""
    found = set()
    for piece in slices:
        for each in piece.get("endpoints") or ():
            target = each.get("targetRef") or {}
            ready = (each.get("conditions") or {}).get("ready") is not False  # absent means ready, as the API has it
            if ready and target.get("kind") == "Pod":
                found.add(str(target.get("name")))
    return len(found)


def zone_of(pod: str, slices: Iterable[Mapping[str, Any]]) -> str:
    """The zone of the pod by the slices; "" if they do not say."""
    endpoints = (each for piece in slices for each in piece.get("endpoints") or ())
    own = (each for each in endpoints if (each.get("targetRef") or {}).get("name") == pod)
    return next((str(each["zone"]) for each in own if each.get("zone")), "")


@contextlib.asynccontextmanager
async def watched_peers(
    client: Any,
    service: str,
    on_change: Callable[[int], None],
    pod: str = "",
    on_zone: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[None]:
    """While the context lasts, `on_change` is told the number of ready gateways whenever it changes and is not 0, and
    `on_zone` the zone of `pod`, which is this gateway's.

    `service` is "namespace/name". Without an API server the last number and zone hold.
    """
    namespace, _, name = service.partition("/")
    last = 0

    def changed(slices: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        nonlocal last
        if zone := zone_of(pod, slices.values()):
            on_zone(zone)
        count = ready_gateways(slices.values())
        if count not in (0, last):
            last = count
            log.info("ready gateways of the Service: %d", count)
            on_change(count)

    selector = f"kubernetes.io/service-name={name}"
    reflector = Reflector(client, collection(*SLICES, namespace), changed, labels=selector)
    task = asyncio.create_task(reflector.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
