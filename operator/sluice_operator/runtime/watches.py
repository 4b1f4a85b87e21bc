"""Thin adapter for Kopf: it passes watch events on to the cache. It decides, stores and writes nothing.

It registers event handlers only: create, update, timer and daemon handlers would add finalizers and annotations. Kopf
runs standalone (the operator's own Lease elects the leader), posts no Events, and discovers no namespaces if some
are given.
"""

from collections.abc import Callable, Collection
from typing import Any

import kopf

from sluice import contract
from sluice_operator.cluster.client import Key
from sluice_operator.cluster.kinds import GROUPS, selector
from sluice_operator.settings import Settings

Event = Callable[[str, str | None, dict[str, Any]], None]  # kind, change (None: from a list), object
Delivered = Callable[[Key, str], None]


def watched_kinds(settings: Settings) -> tuple[str, ...]:
    """Return the kinds that are watched. Secrets are not: the operator may list none (`reconcile/children/token_secrets.py`).

    Namespaces can only be watched all together, which a Role of one namespace does not allow.
    """
    policies = () if settings.network_peers is None else ("NetworkPolicy",)
    namespaces = () if settings.namespaces else ("Namespace",)
    children = ("ReplicaSet", "Pod", "Service", "ServiceAccount", "PodDisruptionBudget", "ConfigMap", *policies)
    return (contract.KIND, "Deployment", *children, *namespaces)


def polled_kinds(settings: Settings) -> tuple[str, ...]:
    """Return the kinds that are listed every few seconds, because not every cluster has them when the operator starts."""
    return () if settings.pod_monitor is None else ("PodMonitor",)


def registry(kinds: Collection[str], event: Event, delivered: Delivered) -> kopf.OperatorRegistry:
    """Return all handlers: each passes an event of the resource or of a child on."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    def login(**known: Any) -> kopf.ConnectionInfo | None:
        """Log in without the client library that Kopf would otherwise import."""
        return kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)

    for kind in kinds:
        _handle(kind, event, delivered, handlers)
    return handlers


def _handle(kind: str, event: Event, delivered: Delivered, handlers: kopf.OperatorRegistry) -> None:
    @kopf.on.event(*GROUPS[kind], registry=handlers, id=kind)
    async def on_event(**given: Any) -> None:
        change, thing = given["event"]["type"], given["event"]["object"]
        event(kind, change, thing)
        if kind == contract.KIND:
            metadata = thing["metadata"]
            delivered(Key(metadata.get("namespace", ""), metadata["name"]), str(metadata.get("resourceVersion", "")))


def kopf_settings(kinds: Collection[str] = ()) -> kopf.OperatorSettings:
    """Return Kopf's settings, with deadlines for requests and watches and bounds on pages and workers."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 600
    settings.watching.client_timeout = 660
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.watching.chunk_size = 100  # objects: a page is held as dicts until all are handled
    for kind in kinds:
        if labels := selector(kind):
            settings.watching.label_selectors[GROUPS[kind]] = labels
    settings.networking.request_timeout = 60
    settings.networking.connect_timeout = 10
    settings.networking.enforce_retry_after = True
    # Kopf keeps a worker per object while idle_timeout lasts, by default 5 s: 20 workers would take 4 objects per second.
    settings.queueing.worker_limit = 50
    settings.queueing.idle_timeout = 0.02
    return settings


async def watch(settings: Settings, event: Event, delivered: Delivered) -> None:
    """Run Kopf until it is cancelled or stopped by a signal."""
    kinds = watched_kinds(settings)
    await kopf.operator(
        registry=registry(kinds, event, delivered),
        settings=kopf_settings(kinds),
        standalone=True,
        namespaces=settings.namespaces,
        clusterwide=not settings.namespaces,
    )
