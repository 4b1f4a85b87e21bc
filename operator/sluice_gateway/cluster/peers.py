"""Which gateways share the rates of the key file, and the zone of this one: from the endpoints of their own Service, by a
watch.

A gateway that starts or drains gets no new connections, so it does not count.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from sluice import contract
from sluice_gateway.cluster.endpoints import SLICES
from sluice_kube.api import collection
from sluice_kube.reflector import Reflector

log = logging.getLogger("sluice.gateway")


def ready_gateways(slices: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The ready pods in the slices and the URLs of their admin ports."""
    found = dict[str, str]()
    for piece in slices:
        for each in piece.get("endpoints") or ():
            target, addresses = each.get("targetRef") or {}, each.get("addresses") or ()
            ready = (each.get("conditions") or {}).get("ready") is not False  # absent means ready, as the API has it
            if ready and addresses and target.get("kind") == "Pod":
                host = f"[{addresses[0]}]" if ":" in addresses[0] else str(addresses[0])
                found.setdefault(str(target.get("name")), f"http://{host}:{contract.GATEWAY_ADMIN_PORT}")
    return found


def zone_of(pod: str, slices: Iterable[Mapping[str, Any]]) -> str:
    """The zone of the pod by the slices; "" if they do not say."""
    endpoints = (each for piece in slices for each in piece.get("endpoints") or ())
    own = (each for each in endpoints if (each.get("targetRef") or {}).get("name") == pod)
    return next((str(each["zone"]) for each in own if each.get("zone")), "")


@contextlib.asynccontextmanager
async def watched_peers(
    client: Any,
    service: str,
    on_change: Callable[[int, Sequence[str]], None],
    pod: str = "",
    on_zone: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[None]:
    """While the context lasts, `on_change` is told the number of ready gateways, and the admin ports of those that are not
    `pod`, whenever they change and are not none, and `on_zone` the zone of `pod`, which is this gateway's.

    `service` is "namespace/name". Without an API server the last gateways and zone hold.
    """
    namespace, _, name = service.partition("/")
    last = dict[str, str]()

    def changed(slices: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        nonlocal last
        if zone := zone_of(pod, slices.values()):
            on_zone(zone)
        found = ready_gateways(slices.values())
        if found and found != last:
            last = found
            log.info("ready gateways of the Service: %d", len(found))
            on_change(len(found), [url for name, url in sorted(found.items()) if name != pod])

    selector = f"kubernetes.io/service-name={name}"
    reflector = Reflector(client, collection(*SLICES, namespace), changed, labels=selector)
    task = asyncio.create_task(reflector.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
