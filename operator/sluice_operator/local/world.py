"""`World` over processes on this machine: the verbs that reconcile acts on, and the controllers that answer them.

Applying a Deployment is enough, as on a cluster: pods come, go, drain and roll by themselves, and are listed in the
API's own shape. Single-threaded: every change wakes one pass of the controllers.
"""

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sluice import contract
from sluice_operator.local.launch import (
    Launch,
    LocalError,
    PodFiles,
    admin_secret_name,
    refuse_claims,
    secret_value,
    serve_launch,
    write_private,
)
from sluice_operator.local.pod import LocalPod, Pace
from sluice_operator.local.process import Ports, tail
from sluice_operator.local.rollout import Replica, Scale, next_actions
from sluice_operator.local.store import ObjectStore, timestamp
from sluice_operator.world import Endpoint, Object, WorldError

__all__ = ["LocalError", "LocalWorld", "LocalWorldOptions"]

LABEL_HASH: Final = "pod-template-hash"
ANNOTATION_DATA_PORT: Final = "local.sluice.dev/data-port"
ANNOTATION_ADMIN_PORT: Final = "local.sluice.dev/admin-port"

Command = Callable[[Object, Ports, PodFiles, str], Launch]
EventSink = Callable[[str, str, bool], None]


def _serve(container: Object, ports: Ports, files: PodFiles, pod: str) -> Launch:
    return serve_launch(container, ports, files, pod=pod)


@dataclass(frozen=True, slots=True)
class LocalWorldOptions:
    """How the world behaves on this machine."""

    state_dir: Path  # logs, tokens, termination messages; mode 0700, the caller's to remove
    pace: Pace = field(default_factory=Pace)
    command: Command = _serve  # (container, ports, files, pod name) → how to start it


class LocalWorld:
    """Objects in memory, pods as processes. `close()` must be awaited: it leaves no process behind."""

    def __init__(
        self,
        options: LocalWorldOptions,
        *,
        on_change: Callable[[], None] = lambda: None,
        on_event: EventSink = lambda reason, message, warning: None,
        held: Callable[[], int] | None = None,
    ) -> None:
        """`on_change()` is called whenever a pod changed; `on_event(reason, message, warning)` for each Event; `held()`
        says how many requests the front door holds, where there is one that does."""
        self._options = options
        self._store = ObjectStore(time.time)
        self._pods: dict[tuple[str, str], LocalPod] = {}
        self._on_change = on_change
        self._on_event = on_event
        self._held = held
        self._woken = False
        self._closing = False

    # --- the verbs of World ------------------------------------------------------------------------------------

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object, or None."""
        item = self._store.get(kind, namespace, name)
        return self._live(item) if item is not None and kind == "Pod" else item

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """The objects of a kind with these labels."""
        items = self._store.list(kind, namespace, labels)
        return [self._live(item) for item in items] if kind == "Pod" else items

    async def apply(self, manifest: Object, *, owner: Object | None = None) -> Object:
        """Server-side apply, in memory. Raises ForeignObject, and WorldError for a pod that is gone."""
        metadata = manifest["metadata"]
        if manifest["kind"] == "Pod" and (metadata.get("namespace", ""), metadata["name"]) not in self._pods:
            raise WorldError(f"pod {metadata['name']} is gone", status=404)
        result = self._store.apply(manifest, owner=owner)
        self._wake()
        return result

    async def create(self, manifest: Object) -> Object | None:
        """Create, or None where it existed."""
        return self._store.create(manifest)

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete; a pod drains first."""
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
        """Hand it to whoever shows it."""
        self._on_event(reason, message, warning)

    def held(self, namespace: str, name: str) -> int | None:
        """What the front door of this machine holds."""
        return None if self._held is None else self._held()

    def endpoint(self, pod: Object) -> Endpoint | None:
        """The admin port of a running pod."""
        port = (pod["metadata"].get("annotations") or {}).get(ANNOTATION_ADMIN_PORT)
        return Endpoint(pod["metadata"]["name"], "127.0.0.1", int(port)) if port else None

    # --- what only this world has ------------------------------------------------------------------------------

    def put(self, resource: Object) -> Object:
        """Take in the LLMDeployment that the user wrote."""
        return self._store.apply(resource)

    def backends(self, namespace: str, name: str) -> tuple[tuple[str, str, int], ...]:
        """(pod, host, data port) of every replica that may be sent requests now."""
        labels = {contract.LABEL_INSTANCE: name, contract.LABEL_NAME: contract.ENGINE_APP}
        found = []
        for item in self._store.list("Pod", namespace, labels):
            pod = self._pods.get((namespace, item["metadata"]["name"]))
            if pod is not None and pod.ready and pod.ports is not None and pod.deleting_at is None:
                found.append((pod.name, "127.0.0.1", pod.ports.data))
        return tuple(found)

    def pid(self, pod: Object) -> int | None:
        """The process id of a pod's container while it runs."""
        found = self._pods.get((pod["metadata"].get("namespace", ""), pod["metadata"]["name"]))
        return found.pid if found is not None else None

    def log_tails(self, *, lines: int = 12) -> dict[str, str]:
        """The last lines of every pod's log, gone ones included."""
        return {log.stem: tail(log, lines=lines) for log in sorted(self._options.state_dir.glob("*.log"))}

    def kill(self) -> None:
        """End every process now."""
        for pod in self._pods.values():
            pod.kill()

    async def close(self) -> None:
        """Drain every pod and return once no process is left. Cancelled, it kills what still runs."""
        self._closing = True
        pods = list(self._pods.values())
        for pod in pods:
            pod.delete()
        try:
            await asyncio.gather(*(pod.gone() for pod in pods))
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
        """One pass of the controllers over every Deployment."""
        self._woken = False
        if self._closing:
            return
        for key, pod in list(self._pods.items()):
            if pod.over and pod.deleting_at is not None:
                del self._pods[key]
                self._store.delete("Pod", *key)
        deployments = self._store.list_all("Deployment")
        uids = {deployment["metadata"]["uid"] for deployment in deployments}
        for deployment in deployments:
            self._roll(deployment)
        for key, pod in self._pods.items():
            item = self._store.get("Pod", *key)
            if item is not None and item["metadata"]["ownerReferences"][0]["uid"] not in uids:
                pod.delete()

    def _roll(self, deployment: Object) -> None:
        metadata, spec = deployment["metadata"], deployment["spec"]
        namespace, template = metadata.get("namespace", ""), spec["template"]
        digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:8]
        rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
        scale = Scale(
            desired=int(spec.get("replicas", 1)),
            max_surge=int(rolling.get("maxSurge", 1)),
            max_unavailable=int(rolling.get("maxUnavailable", 0)),
        )
        replicas = []
        for item in self._store.list("Pod", namespace, {}):
            owner = item["metadata"]["ownerReferences"][0]["uid"]
            pod = self._pods.get((namespace, item["metadata"]["name"]))
            if owner == metadata["uid"] and pod is not None and pod.deleting_at is None:
                replicas.append(_replica(item, pod, digest))
        actions = next_actions(scale, replicas)
        for name in actions.delete:
            self._pods[namespace, name].delete()
        for _ in range(actions.create):
            self._create_pod(deployment, digest)
        self._store.set_status("Deployment", namespace, metadata["name"], _deployment_status(deployment, replicas))

    def _create_pod(self, deployment: Object, digest: str) -> None:
        metadata, template = deployment["metadata"], deployment["spec"]["template"]
        namespace = metadata.get("namespace", "")
        name = f"{metadata['name']}-{digest}-{secrets.token_hex(3)}"
        meta = template.get("metadata") or {}
        self._store.insert(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": {**(meta.get("labels") or {}), LABEL_HASH: digest},
                    "annotations": dict(meta.get("annotations") or {}),
                },
                "spec": template.get("spec", {}),
            },
            deployment,
        )
        files = PodFiles.under(self._options.state_dir, name)

        def launch(pod: str, ports: Ports) -> Launch:
            refuse_claims(template)
            self._write_token(namespace, template, files)
            return self._options.command(template["spec"]["containers"][0], ports, files, pod)

        pod = LocalPod(name, template, files, launch, self._pod_changed, self._options.pace)
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

    def _live(self, item: Object) -> Object:
        """A stored Pod with what only the running one knows."""
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


def _replica(item: Object, pod: LocalPod, digest: str) -> Replica:
    metadata = item["metadata"]
    cost = (metadata.get("annotations") or {}).get(contract.ANNOTATION_DELETION_COST, "0")
    return Replica(
        name=pod.name,
        current=metadata["labels"].get(LABEL_HASH) == digest,
        ready=pod.ready,
        cost=int(cost) if cost.lstrip("-").isdigit() else 0,
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
