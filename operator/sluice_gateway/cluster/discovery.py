"""Keeps a directory current by two watches per namespace. Without an API server, what it has seen last stays."""

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from sluice_gateway.cluster.directory import Directory
from sluice_gateway.cluster.endpoints import SELECTOR, SLICES
from sluice_gateway.cluster.models import DEPLOYMENTS
from sluice_kube.api import collection
from sluice_kube.reflector import Reflector


class Discovery:
    """The watches of some namespaces; an empty sequence means all."""

    def __init__(self, client: Any, namespaces: Sequence[str], directory: Directory) -> None:
        """`client` is a connection of `sluice_kube.api.connect`."""
        self._reflectors = [
            reflector
            for namespace in namespaces or ("",)
            for reflector in (
                Reflector(client, collection(*DEPLOYMENTS, namespace), partial(directory.set_deployments, namespace)),
                Reflector(
                    client, collection(*SLICES, namespace), partial(directory.set_slices, namespace), labels=SELECTOR
                ),
            )
        ]

    @property
    def synced(self) -> bool:
        """True once everything has been listed."""
        return all(reflector.synced for reflector in self._reflectors)

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        """Watch while the context lasts."""
        tasks = [asyncio.create_task(reflector.run()) for reflector in self._reflectors]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
