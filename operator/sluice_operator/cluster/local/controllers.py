"""The controllers of a local cluster: Deployments, the pods that are processes, and the garbage collector.

Single-threaded: every change schedules one pass over all objects.
"""

import asyncio
import hashlib
import json
import logging
import secrets
from collections.abc import Callable
from typing import Final

from sluice_operator.cluster.client import Object, controller_of
from sluice_operator.cluster.local.deployment_controller import Replica, Scale, next_actions
from sluice_operator.cluster.local.kubelet import LocalPod
from sluice_operator.cluster.local.launch import Launch, LocalError, PodFiles, reject_claims, reject_references
from sluice_operator.cluster.local.mounts import write_targets, write_token
from sluice_operator.cluster.local.options import LocalClusterOptions
from sluice_operator.cluster.local.process import Ports
from sluice_operator.cluster.local.store import ObjectStore
from sluice_operator.cluster.pod_status import deletion_cost

log = logging.getLogger(__name__)

LABEL_HASH: Final = "pod-template-hash"


class Controllers:
    """They start, drain, replace and delete the pods of the stored Deployments. `pods` are by namespace and name."""

    def __init__(self, store: ObjectStore, options: LocalClusterOptions, on_change: Callable[[], None]) -> None:
        """`on_change()` is called on every change of a pod."""
        self.pods: dict[tuple[str, str], LocalPod] = {}
        self._store = store
        self._options = options
        self._on_change = on_change
        self._woken = False
        self._closing = False

    def wake(self) -> None:
        """Schedule one pass, unless one is scheduled."""
        if not self._woken and not self._closing:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._pass)

    def kill(self) -> None:
        """Kill every process at once."""
        for pod in self.pods.values():
            pod.kill()

    async def close(self) -> None:
        """Drain every pod and return once all processes have ended. On cancellation, kill the remaining ones."""
        self._closing = True
        pods = list(self.pods.values())
        for pod in pods:
            pod.delete()
        try:
            await asyncio.gather(*(pod.wait_ended() for pod in pods))
        except asyncio.CancelledError:
            for pod in pods:
                pod.kill()
            raise

    def _pod_changed(self) -> None:
        self.wake()
        self._on_change()

    def _pass(self) -> None:
        """Run one pass of the controllers over every Deployment."""
        self._woken = False
        if self._closing:
            return
        for key, pod in list(self.pods.items()):
            if pod.has_ended and pod.deleting_at is not None:
                del self.pods[key]
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
            pod = self.pods.get((item["metadata"]["namespace"], item["metadata"]["name"]))
            if pod is not None and controller_of(item) not in kept:
                pod.delete()

    def _roll(self, deployment: Object) -> None:
        """Start and delete the pods that the Deployment's count and strategy ask for now, and write its status."""
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
            pod = self.pods.get((namespace, item["metadata"]["name"]))
            if controller_of(item) in sets and pod is not None and pod.deleting_at is None:
                replicas.append(_replica(item, pod, digest))
        actions = next_actions(scale, replicas)
        for name in actions.delete:
            self.pods[namespace, name].delete()
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
            write_token(self._store, namespace, template, files)
            write_targets(self._store, namespace, template, files)
            container = template["spec"]["containers"][0]
            reject_references(container)
            return self._options.command(container, ports, files, pod, self._options.replicas)

        pod = LocalPod(name, template, files, launch, self._pod_changed, self._options.periods)
        self.pods[namespace, name] = pod
        pod.start()

    def _renew_targets(self) -> None:
        """Update the mounted ConfigMaps of running pods, as a kubelet does. On failure the pod keeps its old file."""
        for (namespace, name), pod in self.pods.items():
            item = self._store.get("Pod", namespace, name)
            if item is None or pod.pid is None:
                continue
            try:
                write_targets(self._store, namespace, item, pod.files)
            except (LocalError, OSError) as error:
                log.warning("pod %s keeps its old targets: %s", name, error)


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
