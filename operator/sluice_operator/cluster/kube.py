"""`ClusterClient` over a real API server: the only module that writes the cluster.

The Lease has its own module, `cluster/lease.py`. Objects are plain JSON, not model classes. Every request has a deadline.
Kinds that the cache holds are read from it; a write goes to the API server, with the resourceVersion that it was judged
by, and its answer into the cache: the next pass sees it, however late the watch is.
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
from functools import partial
from typing import Any, Final

from kubernetes.aio.client import ApiClient

from sluice import contract
from sluice_kube.api import REQUEST_SECONDS, dynamic_client, request
from sluice_operator.cluster.cache import ObjectCache
from sluice_operator.cluster.cache.slim import slim
from sluice_operator.cluster.client import (
    ClusterError,
    Endpoint,
    ForeignObject,
    Key,
    Object,
    Objects,
    check_owner,
    controller_of,
    is_owned,
    served_name,
)
from sluice_operator.cluster.field_ownership import is_orphan_of, taken_over
from sluice_operator.cluster.kinds import GROUPS, is_selected, path, selector
from sluice_operator.cluster.known_kinds import KnownKinds

log = logging.getLogger(__name__)

# Concurrent requests of all passes; the other connections serve the Lease, which must not wait.
_MAX_REQUESTS: Final = 12
_PAGE: Final = 100  # objects: 500 pods as dicts are 15 MB, which the process would keep
_MAX_APPLIED: Final = 20_000
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_HANDOVER: Final = f"{contract.FIELD_MANAGER}-handover"


class KubeClient:
    """`ClusterClient` on an API server."""

    def __init__(
        self,
        client: ApiClient,
        lease: Callable[[], float] = lambda: math.inf,
        held: Callable[[str, str], int | None] = lambda _namespace, _name: None,
        cache: ObjectCache | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`lease()` returns the seconds for which this process may still write, `held()` what the gateways hold.

        cache: what the watches have delivered; None: every read is a request. `clock()` returns monotonic seconds.
        """
        self._cache = ObjectCache(()) if cache is None else cache
        self._held = held
        self._dynamic = dynamic_client(client)
        self._lease = lease
        self._slots = asyncio.Semaphore(_MAX_REQUESTS)
        self._kinds = KnownKinds(self._plurals, clock)
        # (kind, namespace, name) → (digest of the last manifest, resulting resourceVersion): skips equal applies
        self._applied: OrderedDict[tuple[str, str, str], tuple[str, str]] = OrderedDict()

    async def serves(self, kind: str) -> bool:
        """Return whether the API server has this kind, as of the last minutes. Raises ClusterError."""
        group, version, plural = GROUPS[kind]
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
        if self._cache.holds(kind):
            return self._cache.get(kind, namespace, name)
        return await self._read(kind, namespace, name)

    async def child(self, kind: str, namespace: str, name: str, owner: Object) -> Object | None:
        """Return the object if it is a child of `owner`, also one that has lost its owner reference or the label of the
        watches. Raises ClusterError."""
        found = await self._newest(kind, namespace, name, owner)
        return found if found is not None and (is_owned(found, owner) or is_orphan_of(found, owner)) else None

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """Return the objects of a kind with these labels, read in pages; an empty namespace means all.

        It always asks the API server.
        """
        text = ",".join(f"{label}={value}" for label, value in labels.items())
        return (await self._list(kind, namespace, text))[0]

    async def list_watched(self, kind: str, namespace: str) -> tuple[Objects, str]:
        """Return what a watch of the kind covers, as the cache keeps it, and the resourceVersion of the list. Raises
        ClusterError."""
        return await self._list(kind, namespace, selector(kind), kept=partial(slim, kind))

    async def list_metadata(self, kind: str, namespace: str) -> Objects:
        """Return the objects of a kind with their metadata alone. Raises ClusterError."""
        return (await self._list(kind, namespace, "", header_params={"Accept": _METADATA_ONLY}))[0]

    async def controlled_by(self, kind: str, namespace: str, uid: str, labels: Mapping[str, str]) -> Objects:
        """Return the objects whose controller has this uid. Raises ClusterError."""
        if self._cache.holds(kind):
            return self._cache.controlled_by(kind, uid)
        return [each for each in await self.list(kind, namespace, labels) if controller_of(each) == uid]

    async def serving(self, namespace: str, name: str) -> Objects:
        """Return the LLMDeployments of the namespace with this served name. Raises ClusterError."""
        if self._cache.holds(contract.KIND):
            return self._cache.serving(namespace, name)
        return [each for each in await self.list(contract.KIND, namespace, {}) if served_name(each) == name]

    async def oldest_serving(self, name: str) -> Key | None:
        """Return the oldest LLMDeployment with this served name; None before the first list of the cache."""
        return self._cache.oldest_serving(name) if self._cache.holds(contract.KIND) else None

    def holds(self, kind: str) -> bool:
        """True if the cache holds the kind."""
        return self._cache.holds(kind)

    async def apply(self, manifest: Object, *, owner: Object | None = None) -> Object:
        """Server-side apply with force, which takes ownership of the given fields.

        Before it creates or adopts an object it reads the object and the owner again. The cache covers only objects with the
        operator's labels, and a deletion of the owner may already have deleted its children, or taken it from them. Raises
        ForeignObject, OwnerDeleted, ClusterError.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        where = (kind, metadata["namespace"], metadata["name"])
        live = await self._newest(*where, owner)
        if live is None and owner is None:
            raise ClusterError(f"{kind} {where[1]}/{where[2]} does not exist", status=404)
        if owner is not None and (live is None or not is_owned(live, owner)):
            if live is not None and not is_orphan_of(live, owner):
                raise ForeignObject(f"{kind} {where[1]}/{where[2]} exists and does not belong to this LLMDeployment")
            await self._check_owner(owner)
            if live is not None:
                log.info("%s %s/%s has lost its owner and is adopted again", *where)
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        if live is not None and self._applied.get(where) == (digest, live["metadata"]["resourceVersion"]):
            return live
        try:
            result = await self._write(manifest, live, "resourceVersion")
        except ClusterError as error:
            if error.status != 409 or live is None:
                raise
            # Controllers change the status at any time. Only another count, object or owner needs a new decision.
            newer = await self._read(*where)
            is_ours = newer is not None and (owner is None or is_owned(newer, owner))
            if not is_ours or _replicas(newer) != _replicas(live):
                raise
            result = await self._write(manifest, newer, "uid")
        self._remember(where, (digest, result["metadata"]["resourceVersion"]))
        return result

    async def create(self, manifest: Object, *, owner: Object | None = None) -> Object | None:
        """Create the object; return None if it exists. Raises OwnerDeleted, ClusterError."""
        if owner is not None:
            await self._check_owner(owner)
        where = path(manifest["kind"], manifest["metadata"]["namespace"])
        try:
            made = await self._request("post", where, body=manifest, field_manager=contract.FIELD_MANAGER)
        except ClusterError as error:
            if error.status == 409:
                return None
            raise
        self._keep(manifest["kind"], made)
        return made

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete the object as the cache has it; no error if it does not exist. Raises ClusterError, with the status 409
        if it has changed since."""
        version = self._cache.version(kind, namespace, name)
        options = {"body": {"preconditions": {"resourceVersion": version}}} if version else {}
        try:
            answer = await self._request("delete", path(kind, namespace, name), **options)
        except ClusterError as error:
            if error.status != 404:
                raise
            answer = {}
        if answer.get("kind") == kind:  # it ends later, and has a deletionTimestamp
            self._cache.put(kind, answer)
        else:
            self._cache.forget(kind, namespace, name)

    async def write_status(self, resource: Object, status: Object) -> None:
        """Replace the status of the resource with this uid, not of one recreated under its name. Raises ClusterError."""
        where = _path_of(resource) + "/status"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": resource["metadata"]["uid"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            written = await self._request(
                "patch",
                where,
                body=patch,
                content_type="application/json-patch+json",
                field_manager=contract.FIELD_MANAGER,
            )
        except ClusterError as error:
            if error.status != 404:
                raise
        else:
            self._cache.put(resource["kind"], written)

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
        check_owner(await self._read(owner["kind"], metadata["namespace"], metadata["name"]), owner)

    async def _newest(self, kind: str, namespace: str, name: str, owner: Object | None) -> Object | None:
        """The object of the cache; as the API server has it where the cache shows no object of this owner."""
        found = await self.get(kind, namespace, name)
        is_known = found is not None and (owner is None or is_owned(found, owner))
        return found if is_known or not self._cache.holds(kind) else await self._read(kind, namespace, name)

    async def _read(self, kind: str, namespace: str, name: str) -> Object | None:
        """Ask the API server, and keep the answer."""
        try:
            found = await self._request("get", path(kind, namespace, name))
        except ClusterError as error:
            if error.status == 404:
                return None
            raise
        self._keep(kind, found)
        return found

    async def _list(
        self, kind: str, namespace: str, labels: str, kept: Callable[[Object], Object] = lambda each: each, **how: Any
    ) -> tuple[Objects, str]:
        """Read all pages, and keep of each object what `kept` returns: the whole objects take far more memory."""
        where = path(kind, namespace)
        found: Objects = []
        more: str | None = None
        while True:
            page = await self._request("get", where, label_selector=labels or None, limit=_PAGE, _continue=more, **how)
            found.extend(map(kept, page.get("items") or ()))
            metadata = page.get("metadata") or {}
            more = metadata.get("continue") or None
            if more is None:
                return found, str(metadata.get("resourceVersion", ""))

    async def _write(self, manifest: Object, live: Object | None, judged_by: str) -> Object:
        """Apply the manifest if the object still has this field of the metadata of `live`; None: it must be created.

        Fields of other writers with which it would be invalid are removed.
        """
        leaves_replicas = manifest["kind"] == "Deployment" and "replicas" not in manifest["spec"]
        if live is not None and leaves_replicas and _owns_replicas(live):
            live = await self._server_side(_judged(_only_replicas(live), live, judged_by), _HANDOVER)
        try:
            return await self._server_side(_judged(manifest, live, judged_by), contract.FIELD_MANAGER)
        except ClusterError as error:
            if error.status != 422 or live is None or not await self._take_over(manifest, live):
                raise
        return await self._server_side(_judged(manifest, live, "uid"), contract.FIELD_MANAGER)

    async def _take_over(self, manifest: Object, live: Object) -> bool:
        """Become the owner of what others have set in the object; False if there is nothing to take over."""
        found = await self._request("get", _path_of(manifest))
        fields = taken_over(found, manifest) if _replicas(found) == _replicas(live) else None
        if fields is None or found["metadata"]["uid"] != live["metadata"]["uid"]:
            return False
        log.info("%s: fields of other writers exclude those of the operator and are removed", _path_of(manifest))
        patch = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]},
            {"op": "replace", "path": "/metadata/managedFields", "value": fields},
        ]
        where, content = _path_of(manifest), "application/json-patch+json"
        await self._request("patch", where, body=patch, content_type=content, field_manager=contract.FIELD_MANAGER)
        return True

    async def _server_side(self, manifest: Object, manager: str) -> Object:
        result = await self._request(
            "patch",
            _path_of(manifest),
            body=manifest,
            content_type="application/apply-patch+yaml",
            field_manager=manager,
            force_conflicts=True,
        )
        self._keep(manifest["kind"], result)
        return result

    def _keep(self, kind: str, thing: Object) -> None:
        """Show the next pass an answer of the API server, if it is of what the watches cover."""
        if is_selected(kind, thing):
            self._cache.put(kind, thing)

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


def _judged(manifest: Object, live: Object | None, field: str) -> Object:
    """The manifest with a field of the metadata of `live`: the API server answers 409 if the object has another value."""
    found = (live or {}).get("metadata", {}).get(field)
    return manifest if found is None else manifest | {"metadata": manifest["metadata"] | {field: found}}


def _replicas(thing: Object | None) -> Any:
    return ((thing or {}).get("spec") or {}).get("replicas") if (thing or {}).get("kind") == "Deployment" else None


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
