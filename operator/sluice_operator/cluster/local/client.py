"""`ClusterClient` over processes on this machine.

As on a cluster, an applied Deployment is enough: the controllers start, drain, replace and delete its pods, and this client
lists them in the format of the Kubernetes API.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

from sluice import contract
from sluice_operator.cluster import client
from sluice_operator.cluster.client import ClusterError, Endpoint, Object, Objects, controller_of, is_owned, served_name
from sluice_operator.cluster.local.controllers import Controllers
from sluice_operator.cluster.local.options import LocalClusterOptions
from sluice_operator.cluster.local.store import ObjectStore, timestamp

ANNOTATION_DATA_PORT: Final = "local.sluice.dev/data-port"
ANNOTATION_ADMIN_PORT: Final = "local.sluice.dev/admin-port"

EventSink = Callable[[str, str, bool], None]


class LocalCluster:
    """Objects in memory, pods as processes. `close()` must be awaited: it ends every process."""

    def __init__(
        self,
        options: LocalClusterOptions,
        *,
        on_change: Callable[[], None] = lambda: None,
        on_event: EventSink = lambda reason, message, warning: None,
        held: Callable[[], int] | None = None,
    ) -> None:
        """`on_change()` is called on every change of a pod, `on_event(reason, message, warning)` for each Event.

        `held()` returns the number of requests that the gateway holds; None if no gateway holds requests.
        """
        self._store = ObjectStore(time.time)
        self._controllers = Controllers(self._store, options, on_change)
        self._on_event = on_event
        self._held = held

    # --- the methods of ClusterClient ----------------------------------------------------------------------------------

    async def serves(self, kind: str) -> bool:
        """Return False: no optional kind is of use without the cluster's own controllers."""
        return False

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return the object, or None if it does not exist."""
        item = self._store.get(kind, namespace, name)
        return self._live(item) if item is not None and kind == "Pod" else item

    async def child(self, kind: str, namespace: str, name: str, owner: Object) -> Object | None:
        """Return the object if `owner` owns it."""
        found = await self.get(kind, namespace, name)
        return found if found is not None and is_owned(found, owner) else None

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """Return the objects of a kind with these labels."""
        items = self._store.list(kind, namespace, labels)
        return [self._live(item) for item in items] if kind == "Pod" else items

    async def controlled_by(self, kind: str, namespace: str, uid: str, labels: Mapping[str, str]) -> Objects:
        """Return the objects whose controller has this uid."""
        return [each for each in await self.list(kind, namespace, labels) if controller_of(each) == uid]

    async def serving(self, namespace: str, name: str) -> Objects:
        """Return the LLMDeployments of the namespace with this served name."""
        return [each for each in await self.list(contract.KIND, namespace, {}) if served_name(each) == name]

    async def oldest_serving(self, name: str) -> client.Key | None:
        """Return the oldest LLMDeployment with this served name."""
        return client.oldest_of(await self.list(contract.KIND, "", {}), name)

    def holds(self, kind: str) -> bool:
        """True: all objects are in memory."""
        return True

    async def apply(self, manifest: Object, *, owner: Object | None = None) -> Object:
        """Server-side apply, in memory. Raises ForeignObject; ClusterError for a pod that does not exist."""
        metadata = manifest["metadata"]
        if (
            manifest["kind"] == "Pod"
            and (metadata.get("namespace", ""), metadata["name"]) not in self._controllers.pods
        ):
            raise ClusterError(f"pod {metadata['name']} does not exist", status=404)
        result = self._store.apply(manifest, owner=owner)
        self._controllers.wake()
        return result

    async def create(self, manifest: Object, *, owner: Object | None = None) -> Object | None:
        """Create the object; return None if it exists. `owner` is not read again: the resource is never deleted."""
        return self._store.create(manifest)

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete the object; a pod drains first."""
        if kind == "Pod":
            pod = self._controllers.pods.get((namespace, name))
            if pod is not None:
                pod.delete()
            return
        self._store.delete(kind, namespace, name)
        self._controllers.wake()

    async def write_status(self, resource: Object, status: Object) -> None:
        """Replace the resource's status."""
        metadata = resource["metadata"]
        self._store.set_status(contract.KIND, metadata.get("namespace", ""), metadata["name"], status)

    async def emit_event(self, resource: Object, reason: str, message: str, *, warning: bool) -> None:
        """Pass the Event to `on_event`."""
        self._on_event(reason, message, warning)

    def held(self, namespace: str, name: str) -> int | None:
        """Return the number of requests that the local gateway holds; None without such a gateway."""
        return None if self._held is None else self._held()

    def endpoint(self, pod: Object) -> Endpoint | None:
        """Return the admin port of a running pod; None while it has none."""
        port = (pod["metadata"].get("annotations") or {}).get(ANNOTATION_ADMIN_PORT)
        return Endpoint(pod["metadata"]["name"], "127.0.0.1", int(port)) if port else None

    # --- methods beyond ClusterClient ----------------------------------------------------------------------------------

    def put(self, resource: Object) -> Object:
        """Apply the LLMDeployment of the user and return it as stored."""
        return self._store.apply(resource)

    def backends(self, namespace: str, name: str) -> tuple[tuple[str, str, int, int], ...]:
        """Return (pod, host, data port, admin port) of every replica that is ready and not being deleted."""
        labels = {contract.LABEL_INSTANCE: name, contract.LABEL_NAME: contract.ENGINE_APP}
        found = []
        for item in self._store.list("Pod", namespace, labels):
            pod = self._controllers.pods.get((namespace, item["metadata"]["name"]))
            if pod is not None and pod.ready and pod.ports is not None and pod.deleting_at is None:
                found.append((pod.name, "127.0.0.1", pod.ports.data, pod.ports.admin))
        return tuple(found)

    def pid(self, pod: Object) -> int | None:
        """Return the process id of a pod's container; None if it does not run."""
        found = self._controllers.pods.get((pod["metadata"].get("namespace", ""), pod["metadata"]["name"]))
        return found.pid if found is not None else None

    def kill(self) -> None:
        """Kill every process at once."""
        self._controllers.kill()

    async def close(self) -> None:
        """Drain every pod and return once all processes have ended. On cancellation, kill the remaining ones."""
        await self._controllers.close()

    def _live(self, item: Object) -> Object:
        """A stored Pod with the deletion time, ports and status of the running one."""
        metadata = item["metadata"]
        pod = self._controllers.pods.get((metadata.get("namespace", ""), metadata["name"]))
        if pod is None:
            return item
        if pod.deleting_at is not None:
            metadata["deletionTimestamp"] = timestamp(pod.deleting_at)
        if pod.ports is not None:
            metadata["annotations"] = {
                **(metadata.get("annotations") or {}),
                ANNOTATION_DATA_PORT: str(pod.ports.data),
                ANNOTATION_ADMIN_PORT: str(pod.ports.admin),
            }
        return {**item, "status": pod.status()}
