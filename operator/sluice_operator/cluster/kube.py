"""`ClusterClient` over a real API server: the only module that writes the cluster.

The Lease has its own module, `cluster/lease.py`. Objects are plain JSON, not
model classes. A table lists the few kinds in use, so API discovery and its cache on disk are not needed. Every request
has a deadline.
"""

import asyncio
import hashlib
import json
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kubernetes.aio.client import ApiClient

from sluice import contract
from sluice_kube.api import REQUEST_SECONDS, dynamic_client, request
from sluice_operator.cluster.client import ClusterError, Endpoint, ForeignObject, Object, check_owner, is_owned
from sluice_operator.cluster.known_kinds import KnownKinds

log = logging.getLogger(__name__)

_MAX_REQUESTS: Final = (
    12  # concurrent requests of all passes; the other connections serve the Lease, which must not wait
)
_PAGE: Final = 500
_MAX_APPLIED: Final = 20_000
_HANDOVER: Final = f"{contract.FIELD_MANAGER}-handover"
_GROUPS: Final = {
    "Pod": ("", "v1", "pods"),
    "Service": ("", "v1", "services"),
    "ServiceAccount": ("", "v1", "serviceaccounts"),
    "Secret": ("", "v1", "secrets"),
    "ConfigMap": ("", "v1", "configmaps"),
    "Event": ("", "v1", "events"),
    "Deployment": ("apps", "v1", "deployments"),
    "ReplicaSet": ("apps", "v1", "replicasets"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
    "NetworkPolicy": ("networking.k8s.io", "v1", "networkpolicies"),
    "Lease": ("coordination.k8s.io", "v1", "leases"),
    "PodMonitor": ("monitoring.coreos.com", "v1", "podmonitors"),  # of the Prometheus Operator
    contract.KIND: (contract.GROUP, contract.VERSION, contract.PLURAL),
}


def path(kind: str, namespace: str = "", name: str = "") -> str:
    """Return the API path of one object, of a kind in one namespace, or of a kind in all namespaces. Raises ClusterError
    for a kind that this operator does not use."""
    if kind not in _GROUPS:
        raise ClusterError(f"kind {kind} is not supported by this client")
    group, version, plural = _GROUPS[kind]
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    placed = f"{prefix}/namespaces/{namespace}" if namespace else prefix
    return f"{placed}/{plural}/{name}" if name else f"{placed}/{plural}"


class KubeClient:
    """`ClusterClient` on an API server."""

    def __init__(
        self,
        client: ApiClient,
        lease: Callable[[], float] = lambda: math.inf,
        held: Callable[[str, str], int | None] = lambda _namespace, _name: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`lease()` returns the seconds for which this process may still write, `held()` what the gateways hold.

        `clock()` returns monotonic seconds.
        """
        self._held = held
        self._dynamic = dynamic_client(client)
        self._lease = lease
        self._slots = asyncio.Semaphore(_MAX_REQUESTS)
        self._kinds = KnownKinds(self._plurals, clock)
        # (kind, namespace, name) → (digest of the last manifest, resulting resourceVersion): skips equal applies
        self._applied: OrderedDict[tuple[str, str, str], tuple[str, str]] = OrderedDict()

    async def serves(self, kind: str) -> bool:
        """Return whether the API server has this kind, as of the last minutes. Raises ClusterError."""
        group, version, plural = _GROUPS[kind]
        return await self._kinds.has(f"/apis/{group}/{version}", plural)

    async def _plurals(self, group_version: str) -> frozenset[str]:
        try:
            found = await self._request("get", group_version)
        except ClusterError as error:
            if error.status == 404:
                return frozenset()
            raise
        return frozenset(str(each["name"]) for each in found.get("resources") or ())

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return the object, or None if it does not exist. Raises ClusterError."""
        try:
            return await self._request("get", path(kind, namespace, name))
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """Return the objects of a kind with these labels, read in pages of 500; an empty namespace means all."""
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
        """Server-side apply with force, which takes ownership of the given fields.

        Before it creates an object it reads the owner again: the garbage collector may already have deleted the children
        of an owner that a user deletes in the foreground. Raises ForeignObject, OwnerDeleted, ClusterError.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        where = (kind, metadata["namespace"], metadata["name"])
        live = await self.get(*where)
        if live is None and owner is None:
            raise ClusterError(f"{kind} {where[1]}/{where[2]} does not exist", status=404)
        if live is None and owner is not None:
            await self._check_owner(owner)
        if live is not None and owner is not None and not is_owned(live, owner):
            raise ForeignObject(f"{kind} {where[1]}/{where[2]} exists and does not belong to this LLMDeployment")
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        if live is not None and self._applied.get(where) == (digest, live["metadata"]["resourceVersion"]):
            return live
        if live is not None and kind == "Deployment" and "replicas" not in manifest["spec"] and _owns_replicas(live):
            await self._server_side(_only_replicas(live), _HANDOVER)
        result = await self._server_side(manifest, contract.FIELD_MANAGER)
        self._remember(where, (digest, result["metadata"]["resourceVersion"]))
        return result

    async def create(self, manifest: Object, *, owner: Object | None = None) -> Object | None:
        """Create the object; return None if it exists. Raises OwnerDeleted, ClusterError."""
        if owner is not None:
            await self._check_owner(owner)
        where = path(manifest["kind"], manifest["metadata"]["namespace"])
        try:
            return await self._request("post", where, body=manifest, field_manager=contract.FIELD_MANAGER)
        except ClusterError as error:
            if error.status == 409:
                return None
            raise

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete the object; no error if it does not exist. Raises ClusterError."""
        try:
            await self._request("delete", path(kind, namespace, name))
        except ClusterError as error:
            if error.status != 404:
                raise

    async def write_status(self, resource: Object, status: Object) -> None:
        """Replace the status of the resource with this uid, not of one recreated under its name. Raises ClusterError."""
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
        except ClusterError as error:
            if error.status != 404:
                raise

    async def emit_event(self, resource: Object, reason: str, message: str, *, warning: bool) -> None:
        """Post an Event; a failure is only logged."""
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
        except ClusterError as error:
            log.warning("Event %s lost: %s", reason, error)

    def held(self, namespace: str, name: str) -> int | None:
        """Return the number of requests that all gateways hold; None if none is installed, for a Service holds nothing."""
        return self._held(namespace, name)

    def endpoint(self, pod: Object) -> Endpoint | None:
        """Return the admin port at the pod's IP; None while the pod has no IP."""
        address = (pod.get("status") or {}).get("podIP")
        return Endpoint(pod["metadata"]["name"], str(address), contract.ADMIN_PORT) if address else None

    async def _check_owner(self, owner: Object) -> None:
        metadata = owner["metadata"]
        check_owner(await self.get(owner["kind"], metadata["namespace"], metadata["name"]), owner)

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
        if len(self._applied) > _MAX_APPLIED:
            self._applied.popitem(last=False)

    async def _request(self, method: str, where: str, **parameters: Any) -> Object:
        """Send a request. A write is neither started nor awaited after the Lease has expired."""
        async with self._slots:  # the timeout of the pass bounds the wait for a slot
            seconds = REQUEST_SECONDS if method == "get" else min(REQUEST_SECONDS, self._lease())
            if seconds <= 0:
                raise ClusterError(f"{method.upper()} {where}: not sent: this process no longer holds the Lease")
            return await request(self._dynamic, method, where, seconds, **parameters)


def _path_of(thing: Object) -> str:
    metadata = thing["metadata"]
    return path(thing["kind"], metadata["namespace"], metadata["name"])


def _owns_replicas(deployment: Object) -> bool:
    """True if an apply without `spec.replicas` would remove the field, which the API server then defaults to 1."""
    return any(
        entry.get("manager") == contract.FIELD_MANAGER
        and entry.get("operation") == "Apply"
        and "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
        for entry in deployment["metadata"].get("managedFields") or ()
    )


def _only_replicas(deployment: Object) -> Object:
    """A manifest with the current count only; a separate field manager owns it until another writer takes it over."""
    metadata = {name: deployment["metadata"][name] for name in ("name", "namespace")}
    spec = {"replicas": deployment["spec"].get("replicas", 1)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
