"""`ClusterClient` over processes on this machine: the client methods, and the controllers that act on the stored objects.

As on a cluster, an applied Deployment is enough: the controllers start, drain, replace and delete its pods, and list
them in the format of the Kubernetes API. Single-threaded: every change schedules one pass of the controllers.
"""

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sluice import contract
from sluice_operator.cluster import client
from sluice_operator.cluster.client import ClusterError, Endpoint, Object, Objects, controller_of, served_name
from sluice_operator.cluster.local.deployment_controller import Replica, Scale, next_actions
from sluice_operator.cluster.local.kubelet import KubeletPeriods, LocalPod
from sluice_operator.cluster.local.launch import (
    Launch,
    LocalError,
    PodFiles,
    admin_secret_name,
    reject_claims,
    reject_references,
    replace_file,
    secret_value,
    serve_launch,
    targets_name,
    write_private,
)
from sluice_operator.cluster.local.process import Ports, tail
from sluice_operator.cluster.local.store import ObjectStore, timestamp
from sluice_operator.cluster.pod_status import deletion_cost

__all__ = ["LocalCluster", "LocalClusterOptions", "LocalError"]

log = logging.getLogger(__name__)

LABEL_HASH: Final = "pod-template-hash"
ANNOTATION_DATA_PORT: Final = "local.sluice.dev/data-port"
ANNOTATION_ADMIN_PORT: Final = "local.sluice.dev/admin-port"

Command = Callable[[Object, Ports, PodFiles, str, int], Launch]
EventSink = Callable[[str, str, bool], None]


@dataclass(frozen=True, slots=True)
class LocalClusterOptions:
    """Options of `LocalCluster`."""

    state_dir: Path  # logs, tokens, termination messages; mode 0700; the caller removes it
    periods: KubeletPeriods = field(default_factory=KubeletPeriods)
    command: Command = serve_launch  # (container, ports, files, pod name, replicas) → start command
    replicas: int = 1  # the most that run at once and share this machine
    api_keys: Path | None = None  # key file of all engines; the kubelet would mount the Secret
    gateway_token: Path | None = None  # of the gateway that verifies these keys; likewise


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
        self._options = options
        self._store = ObjectStore(time.time)
        self._pods: dict[tuple[str, str], LocalPod] = {}
        self._on_change = on_change
        self._on_event = on_event
        self._held = held
        self._woken = False
        self._closing = False

    # --- the methods of ClusterClient ----------------------------------------------------------------------------------

    async def serves(self, kind: str) -> bool:
        """Return False: no optional kind is of use without the cluster's own controllers."""
        return False

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return the object, or None if it does not exist."""
        item = self._store.get(kind, namespace, name)
        return self._live(item) if item is not None and kind == "Pod" else item

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
        if manifest["kind"] == "Pod" and (metadata.get("namespace", ""), metadata["name"]) not in self._pods:
            raise ClusterError(f"pod {metadata['name']} does not exist", status=404)
        result = self._store.apply(manifest, owner=owner)
        self._wake()
        return result

    async def create(self, manifest: Object, *, owner: Object | None = None) -> Object | None:
        """Create the object; return None if it exists. `owner` is not read again: the resource is never deleted."""
        return self._store.create(manifest)

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete the object; a pod drains first."""
        if kind == "Pod":
            pod = self._pods.get((namespace, name))
            if pod is not None:
                pod.delete()
            return
        self._store.delete(kind, namespace, name)
        self._wake()

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
            pod = self._pods.get((namespace, item["metadata"]["name"]))
            if pod is not None and pod.ready and pod.ports is not None and pod.deleting_at is None:
                found.append((pod.name, "127.0.0.1", pod.ports.data, pod.ports.admin))
        return tuple(found)

    def pid(self, pod: Object) -> int | None:
        """Return the process id of a pod's container; None if it does not run."""
        found = self._pods.get((pod["metadata"].get("namespace", ""), pod["metadata"]["name"]))
        return found.pid if found is not None else None

    def log_tails(self, *, lines: int = 12) -> dict[str, str]:
        """Return the last lines of every pod's log by log file name; deleted pods are included."""
        return {log.stem: tail(log, lines=lines) for log in sorted(self._options.state_dir.glob("*.log"))}

    def kill(self) -> None:
        """Kill every process at once."""
        for pod in self._pods.values():
            pod.kill()

    async def close(self) -> None:
        """Drain every pod and return once all processes have ended. On cancellation, kill the remaining ones."""
        self._closing = True
        pods = list(self._pods.values())
        for pod in pods:
            pod.delete()
        try:
            await asyncio.gather(*(pod.wait_ended() for pod in pods))
        except asyncio.CancelledError:
            for pod in pods:
                pod.kill()
            raise

    # --- the controllers ---------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._woken and not self._closing:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._pass)

    def _pod_changed(self) -> None:
        self._wake()
        self._on_change()

    def _pass(self) -> None:
        """Run one pass of the controllers over every Deployment."""
        self._woken = False
        if self._closing:
            return
        for key, pod in list(self._pods.items()):
            if pod.has_ended and pod.deleting_at is not None:
                del self._pods[key]
                self._store.delete("Pod", *key)
        self._renew_targets()
        for deployment in self._store.list_all("Deployment"):
            self._roll(deployment)
        self._collect()

    def _collect(self) -> None:
        """Delete objects without an owner, and ReplicaSets of old template versions once they have no pod."""
        deployments = {each["metadata"]["uid"]: each for each in self._store.list_all("Deployment")}
        pods = self._store.list_all("Pod")
        busy = {controller_of(pod) for pod in pods}
        kept = set()
        for each in self._store.list_all("ReplicaSet"):
            metadata, owner = each["metadata"], deployments.get(controller_of(each))
            if owner is not None:
                kept.add(metadata["uid"])
            current = owner is not None and metadata["labels"][LABEL_HASH] == _digest(owner["spec"]["template"])
            if not current and metadata["uid"] not in busy:
                self._store.delete("ReplicaSet", metadata["namespace"], metadata["name"])
        for item in pods:
            pod = self._pods.get((item["metadata"]["namespace"], item["metadata"]["name"]))
            if pod is not None and controller_of(item) not in kept:
                pod.delete()

    def _roll(self, deployment: Object) -> None:
        metadata, spec = deployment["metadata"], deployment["spec"]
        namespace, template = metadata.get("namespace", ""), spec["template"]
        digest = _digest(template)
        current = self._replica_set(deployment, digest)
        sets = {
            each["metadata"]["uid"]
            for each in self._store.list("ReplicaSet", namespace, {})
            if controller_of(each) == metadata["uid"]
        }
        rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
        scale = Scale(
            desired=int(spec.get("replicas", 1)),
            max_surge=int(rolling.get("maxSurge", 1)),
            max_unavailable=int(rolling.get("maxUnavailable", 0)),
        )
        replicas = []
        for item in self._store.list("Pod", namespace, {}):
            pod = self._pods.get((namespace, item["metadata"]["name"]))
            if controller_of(item) in sets and pod is not None and pod.deleting_at is None:
                replicas.append(_replica(item, pod, digest))
        actions = next_actions(scale, replicas)
        for name in actions.delete:
            self._pods[namespace, name].delete()
        for _ in range(actions.create):
            self._create_pod(current, template)
        self._store.set_status("Deployment", namespace, metadata["name"], _deployment_status(deployment, replicas))

    def _replica_set(self, deployment: Object, digest: str) -> Object:
        """The ReplicaSet of this template version; created if it does not exist."""
        metadata, template = deployment["metadata"], deployment["spec"]["template"]
        namespace, name = metadata.get("namespace", ""), f"{metadata['name']}-{digest}"
        found = self._store.get("ReplicaSet", namespace, name)
        if found is not None and controller_of(found) == metadata["uid"]:
            return found
        labels = {**((template.get("metadata") or {}).get("labels") or {}), LABEL_HASH: digest}
        made = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"template": template},
        }
        return self._store.insert(made, deployment)

    def _create_pod(self, replica_set: Object, template: Object) -> None:
        metadata = replica_set["metadata"]
        namespace = metadata["namespace"]
        name = f"{metadata['name']}-{secrets.token_hex(3)}"
        meta = template.get("metadata") or {}
        self._store.insert(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": metadata["labels"],
                    "annotations": dict(meta.get("annotations") or {}),
                },
                "spec": template.get("spec", {}),
            },
            replica_set,
        )
        files = PodFiles.under(self._options.state_dir, name, self._options.api_keys, self._options.gateway_token)

        def launch(pod: str, ports: Ports) -> Launch:
            reject_claims(template)
            self._write_token(namespace, template, files)
            self._write_targets(namespace, template, files)
            container = template["spec"]["containers"][0]
            reject_references(container)
            return self._options.command(container, ports, files, pod, self._options.replicas)

        pod = LocalPod(name, template, files, launch, self._pod_changed, self._options.periods)
        self._pods[namespace, name] = pod
        pod.start()

    def _write_token(self, namespace: str, template: Object, files: PodFiles) -> None:
        name = admin_secret_name(template)
        if name is None:
            return
        secret = self._store.get("Secret", namespace, name)
        if secret is None:
            raise LocalError(f'secret "{name}" not found')
        write_private(files.token, secret_value(secret, contract.ADMIN_TOKEN_KEY))

    def _renew_targets(self) -> None:
        """Update the mounted ConfigMaps of running pods, as a kubelet does. On failure the pod keeps its old file."""
        for (namespace, name), pod in self._pods.items():
            item = self._store.get("Pod", namespace, name)
            if item is None or pod.pid is None:
                continue
            try:
                self._write_targets(namespace, item, pod.files)
            except (LocalError, OSError) as error:
                log.warning("pod %s keeps its old targets: %s", name, error)

    def _write_targets(self, namespace: str, template: Object, files: PodFiles) -> None:
        """Mount the ConfigMap as files, replaced atomically. Raises LocalError if the ConfigMap does not exist."""
        name = targets_name(template)
        if name is None:
            return
        found = self._store.get("ConfigMap", namespace, name)
        if found is None:
            raise LocalError(f'configmap "{name}" not found')
        data = found.get("data") or {}
        for path, key in ((files.targets, contract.TARGETS_FILE), (files.revision, contract.REVISION_FILE)):
            content = str(data.get(key, "")).encode()
            if key in data and (not path.exists() or path.read_bytes() != content):
                replace_file(path, content)

    def _live(self, item: Object) -> Object:
        """A stored Pod with the deletion time, ports and status of the running one."""
        metadata = item["metadata"]
        pod = self._pods.get((metadata.get("namespace", ""), metadata["name"]))
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


def _digest(template: Object) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:8]


def _replica(item: Object, pod: LocalPod, digest: str) -> Replica:
    metadata = item["metadata"]
    return Replica(
        name=pod.name,
        current=metadata["labels"].get(LABEL_HASH) == digest,
        ready=pod.ready,
        cost=deletion_cost(item) or 0,
        created=pod.created,
    )


def _deployment_status(deployment: Object, replicas: list[Replica]) -> Object:
    ready = sum(replica.ready for replica in replicas)
    return {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        "replicas": len(replicas),
        "updatedReplicas": sum(replica.current for replica in replicas),
        "readyReplicas": ready,
        "availableReplicas": ready,
    }
