"""`World` over a real API server: the only module that reads and writes the cluster (the Lease has its own, lease.py).

Plain JSON in and out, no model classes: a handful of kinds is known by table, so nothing is discovered and nothing
is cached on disk. Every request has a deadline.
"""

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kubernetes.aio import client as aio_client
from kubernetes.aio import config as aio_config
from kubernetes.aio.client import ApiClient, ApiException, Configuration
from kubernetes.aio.dynamic import DynamicClient

from sluice import contract
from sluice_operator.world import Endpoint, ForeignObject, Object, WorldError, is_owned

log = logging.getLogger(__name__)

# Untyped libraries, said once.
config: Any = aio_config
dynamic_client: Any = DynamicClient
transport: Any = aio_client.rest

REQUEST_SECONDS: Final = 10.0
_CONNECTIONS: Final = 16
_PAGE: Final = 500
_REMEMBERED_APPLIES: Final = 20_000
_HANDOVER: Final = f"{contract.FIELD_MANAGER}-handover"
_GROUPS: Final = {
    "Pod": ("", "v1", "pods"),
    "Service": ("", "v1", "services"),
    "ServiceAccount": ("", "v1", "serviceaccounts"),
    "Secret": ("", "v1", "secrets"),
    "ConfigMap": ("", "v1", "configmaps"),
    "Event": ("", "v1", "events"),
    "Deployment": ("apps", "v1", "deployments"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
    "Lease": ("coordination.k8s.io", "v1", "leases"),
    contract.KIND: (contract.GROUP, contract.VERSION, contract.PLURAL),
}


def path(kind: str, namespace: str = "", name: str = "") -> str:
    """Where objects of a kind live in the API: one, those of a namespace, or all. Raises WorldError for a kind that
    this operator never touches."""
    if kind not in _GROUPS:
        raise WorldError(f"kind {kind} is none of those the operator works with")
    group, version, plural = _GROUPS[kind]
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    placed = f"{prefix}/namespaces/{namespace}" if namespace else prefix
    return f"{placed}/{plural}/{name}" if name else f"{placed}/{plural}"


async def connect() -> ApiClient:
    """A client for the cluster we run in, or for the one that KUBECONFIG names. Raises WorldError."""
    settings = Configuration()
    try:
        config.load_incluster_config(client_configuration=settings)
    except config.ConfigException:
        try:
            await config.load_kube_config(client_configuration=settings)
        except (config.ConfigException, OSError) as error:
            raise WorldError(
                f"no cluster to talk to: not inside a pod, and no usable kubeconfig ({error}). Set KUBECONFIG."
            ) from error
    settings.connection_pool_maxsize = _CONNECTIONS
    return ApiClient(configuration=settings)


class KubeWorld:
    """The verbs of `World` on an API server."""

    def __init__(self, client: ApiClient) -> None:
        self._dynamic = dynamic_client(client)
        # (kind, namespace, name) → digest of what we applied and the version it led to: no need to apply it again
        self._applied: OrderedDict[tuple[str, str, str], tuple[str, str]] = OrderedDict()

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object, or None."""
        try:
            return await self._request("get", path(kind, namespace, name))
        except WorldError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """The objects of a kind with these labels, page by page; of all namespaces where it is empty."""
        selector = ",".join(f"{label}={value}" for label, value in labels.items()) or None
        where = path(kind, namespace)
        found: list[Object] = []
        more: str | None = None
        while True:
            page = await self._request("get", where, label_selector=selector, limit=_PAGE, _continue=more)
            found.extend(page.get("items") or ())
            more = (page.get("metadata") or {}).get("continue") or None
            if more is None:
                return found

    async def apply(self, manifest: Object, *, owner: Object | None = None) -> Object:
        """Server-side apply, forced: the fields given are ours. Raises ForeignObject, WorldError."""
        kind, metadata = manifest["kind"], manifest["metadata"]
        where = (kind, metadata["namespace"], metadata["name"])
        live = await self.get(*where)
        if live is None and owner is None:
            raise WorldError(f"{kind} {where[1]}/{where[2]} is gone", status=404)
        if live is not None and owner is not None and not is_owned(live, owner):
            raise ForeignObject(f"{kind} {where[1]}/{where[2]} exists and does not belong to this LLMDeployment")
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        if live is not None and self._applied.get(where) == (digest, live["metadata"]["resourceVersion"]):
            return live
        if live is not None and kind == "Deployment" and "replicas" not in manifest["spec"] and _own_replicas(live):
            await self._server_side(_only_replicas(live), _HANDOVER)
        result = await self._server_side(manifest, contract.FIELD_MANAGER)
        self._remember(where, (digest, result["metadata"]["resourceVersion"]))
        return result

    async def create(self, manifest: Object) -> Object | None:
        """Create, or None where it existed."""
        where = path(manifest["kind"], manifest["metadata"]["namespace"])
        try:
            return await self._request("post", where, body=manifest, field_manager=contract.FIELD_MANAGER)
        except WorldError as error:
            if error.status == 409:
                return None
            raise

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete; no error where it is gone."""
        try:
            await self._request("delete", path(kind, namespace, name))
        except WorldError as error:
            if error.status != 404:
                raise

    async def write_status(self, resource: Object, status: Object) -> None:
        """Replace the whole status of exactly this resource, not of one that was created anew under its name."""
        where = _path_of(resource) + "/status"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": resource["metadata"]["uid"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            await self._request(
                "patch",
                where,
                body=patch,
                content_type="application/json-patch+json",
                field_manager=contract.FIELD_MANAGER,
            )
        except WorldError as error:
            if error.status != 404:
                raise

    async def emit_event(self, resource: Object, reason: str, message: str, *, warning: bool) -> None:
        """Post an Event; a lost one is only logged."""
        metadata, now = resource["metadata"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": resource["apiVersion"],
                "kind": resource["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "reason": reason,
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "source": {"component": contract.FIELD_MANAGER},
            "reportingComponent": contract.FIELD_MANAGER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self.create(event)
        except WorldError as error:
            log.warning("Event %s lost: %s", reason, error)

    def held(self, namespace: str, name: str) -> int | None:
        """None: a Service cannot hold a request, so nobody would be there to wake a model that has no replica."""
        return None

    def endpoint(self, pod: Object) -> Endpoint | None:
        """The admin port at the pod's address."""
        address = (pod.get("status") or {}).get("podIP")
        return Endpoint(pod["metadata"]["name"], str(address), contract.ADMIN_PORT) if address else None

    async def _server_side(self, manifest: Object, manager: str) -> Object:
        return await self._request(
            "patch",
            _path_of(manifest),
            body=manifest,
            content_type="application/apply-patch+yaml",
            field_manager=manager,
            force_conflicts=True,
        )

    def _remember(self, where: tuple[str, str, str], what: tuple[str, str]) -> None:
        self._applied[where] = what
        self._applied.move_to_end(where)
        if len(self._applied) > _REMEMBERED_APPLIES:
            self._applied.popitem(last=False)

    async def _request(self, method: str, where: str, **parameters: Any) -> Object:
        return await request(self._dynamic, method, where, **parameters)


async def request(dynamic: Any, method: str, where: str, **parameters: Any) -> Object:
    """One request with a deadline, its answer as JSON. Raises WorldError with the server's own words."""
    what = f"{method.upper()} {where}"
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            response = await dynamic.request(method, where, serialize=False, **parameters)
            answer: Object = await response.json()
            return answer
    except ApiException as error:
        raise WorldError(f"{what}: {error.status} {_words(error)}", status=int(error.status or 0)) from error
    except TimeoutError as error:
        raise WorldError(f"{what}: no answer within {REQUEST_SECONDS:.0f} s") from error
    # The transport lets its HTTP library's errors through; naming them by way of the transport keeps that library out.
    except (transport.aiohttp.ClientError, OSError, ValueError) as error:
        raise WorldError(f"{what}: {error or type(error).__name__}") from error


def _words(error: ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, TypeError, KeyError):
        return str(error.reason)


def _path_of(thing: Object) -> str:
    metadata = thing["metadata"]
    return path(thing["kind"], metadata["namespace"], metadata["name"])


def _own_replicas(deployment: Object) -> bool:
    """Whether leaving `spec.replicas` out of an apply would drop it, and the API server set it to 1."""
    return any(
        entry.get("manager") == contract.FIELD_MANAGER
        and entry.get("operation") == "Apply"
        and "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
        for entry in deployment["metadata"].get("managedFields") or ()
    )


def _only_replicas(deployment: Object) -> Object:
    """The count as it stands, to be held by a manager of its own until somebody else takes it over."""
    metadata = {name: deployment["metadata"][name] for name in ("name", "namespace")}
    spec = {"replicas": deployment["spec"].get("replicas", 1)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
