"""Thin adapter for Kopf: it turns watch events into wake-ups of workers. It decides, stores and writes nothing.

It registers event handlers only: create, update, timer and daemon handlers would add finalizers and annotations. Kopf
runs standalone (the operator's own Lease elects the leader), posts no Events, and discovers no namespaces if one is
given.
"""

from collections.abc import Callable
from typing import Any, Final

import kopf

from sluice import contract
from sluice_operator.cluster.client import Key
from sluice_operator.settings import Settings

_ENGINES: Final = f"{contract.LABEL_NAME}={contract.ENGINE_APP}"  # filtered by the API server

Wake = Callable[[Key], None]
Delivered = Callable[[Key, str], None]


def registry(wake: Wake, delivered: Delivered) -> kopf.OperatorRegistry:
    """Return all handlers: events of the resource and of its children wake the worker of the resource."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    def login(**known: Any) -> kopf.ConnectionInfo | None:
        """Log in without the client library that Kopf would otherwise import."""
        return kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)

    @kopf.on.event(contract.GROUP, contract.VERSION, contract.PLURAL, registry=handlers)
    async def on_resource(name: str, namespace: str | None, body: kopf.Body, **_: Any) -> None:
        key = Key(namespace or "", name)
        delivered(key, str(body.metadata.get("resourceVersion", "")))
        wake(key)

    @kopf.on.event("apps", "v1", "deployments", registry=handlers)
    @kopf.on.event("", "v1", "pods", registry=handlers)
    async def on_child(namespace: str | None, labels: kopf.Labels, **_: Any) -> None:
        if instance := labels.get(contract.LABEL_INSTANCE):
            wake(Key(namespace or "", instance))

    return handlers


def kopf_settings() -> kopf.OperatorSettings:
    """Return Kopf's settings, with deadlines for requests and watches and bounds on pages and workers."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 600
    settings.watching.client_timeout = 660
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.watching.chunk_size = 500
    settings.watching.label_selectors["", "v1", "pods"] = _ENGINES
    settings.watching.label_selectors["apps", "v1", "deployments"] = _ENGINES
    settings.networking.request_timeout = 60
    settings.networking.connect_timeout = 10
    settings.networking.enforce_retry_after = True
    settings.queueing.worker_limit = 20
    return settings


async def watch(settings: Settings, wake: Wake, delivered: Delivered) -> None:
    """Run Kopf until it is cancelled or stopped by a signal."""
    await kopf.operator(
        registry=registry(wake, delivered),
        settings=kopf_settings(),
        standalone=True,
        namespaces=[settings.namespace] if settings.namespace else [],
        clusterwide=not settings.namespace,
    )
