"""How many gateways share the rates of the key file: the ready endpoints of their own Service, by a watch.

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


@contextlib.asynccontextmanager
async def watched_peers(client: Any, service: str, on_change: Callable[[int], None]) -> AsyncIterator[None]:
    """While the context lasts, `on_change` is told the number of ready gateways whenever it changes and is not 0.

    `service` is "namespace/name". Without an API server the last number holds.
    """
    namespace, _, name = service.partition("/")
    last = 0

    def changed(slices: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        nonlocal last
        count = ready_gateways(slices.values())
        if count not in (0, last):
            last = count
            log.info("gateways that share the rates of the key file: %d", count)
            on_change(count)

    selector = f"kubernetes.io/service-name={name}"
    reflector = Reflector(client, collection(*SLICES, namespace), changed, labels=selector)
    task = asyncio.create_task(reflector.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
