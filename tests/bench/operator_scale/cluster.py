"""The cluster of KUBECONFIG: sets up and removes the objects of the bench, and reads what the API server counts."""

import asyncio
import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import yaml

from sluice import contract
from sluice.commands.crds import crd_text
from sluice_kube.api import collection, dynamic_client, request, request_text
from sluice_kube.errors import ClusterError
from tests.bench.operator_scale import objects
from tests.bench.operator_scale.api_requests import dispatched
from tests.bench.operator_scale.objects import ACCOUNT, SYSTEM, Object

RESOURCES: Final = f"{contract.GROUP}/{contract.VERSION}", contract.PLURAL
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_HEARTBEAT_SECONDS: Final = 10.0
_SECONDS: Final = 60.0
_REMOVAL_SECONDS: Final = 600.0  # of the namespaces of an earlier run
_PODS: Final = f"{contract.LABEL_NAME}={contract.ENGINE_APP}"


class Cluster:
    """Requests of the bench itself, with the rights of KUBECONFIG."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._dynamic = dynamic_client(client)

    async def ask(self, method: str, path: str, **parameters: Any) -> Object:
        """Send one request. Raises ClusterError."""
        return await request(self._dynamic, method, path, _SECONDS, **parameters)

    async def create(self, path: str, thing: Object) -> None:
        """Create an object unless it exists."""
        try:
            await self.ask("post", path, body=thing)
        except ClusterError as error:
            if error.status != 409:
                raise

    async def prepare(self, scale: int) -> None:
        """Create nodes, namespaces, the operator's account and the kind of the resources."""
        await self.create(CRDS, yaml.safe_load(crd_text()))
        for name in (SYSTEM, *objects.namespaces(scale)):
            await self._namespace(name)
        for path, thing in objects.account():
            await self.create(path, thing)
        for node in objects.nodes(scale):
            await self.create("/api/v1/nodes", node)
            await self.create(_LEASES, objects.lease(node["metadata"]["name"]))
        await self._wait_for_resources()

    async def create_resources(self, scale: int) -> None:
        """Create the LLMDeployments. Their pods come once an operator runs."""
        await self._all(self.create(_resources(number), objects.resource(number)) for number in range(scale))

    async def _namespace(self, name: str) -> None:
        """Create a namespace once an earlier one of this name is gone. Raises TimeoutError."""
        async with asyncio.timeout(_REMOVAL_SECONDS):
            while True:
                await self.create("/api/v1/namespaces", {"metadata": {"name": name}})
                made = await self.ask("get", f"/api/v1/namespaces/{name}")
                if "deletionTimestamp" not in made["metadata"]:
                    return
                await asyncio.sleep(2)

    async def _wait_for_resources(self) -> None:
        """Return once the API server serves the new kind. Raises TimeoutError."""
        async with asyncio.timeout(_SECONDS):
            while True:
                with contextlib.suppress(ClusterError):
                    await self.ask("get", collection(*RESOURCES), limit=1)
                    return
                await asyncio.sleep(0.5)

    async def kubeconfig(self) -> str:
        """Return a kubeconfig with a token of the operator's account."""
        where = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{ACCOUNT}/token"
        made = await self.ask("post", where, body={"spec": {"expirationSeconds": 7200}})
        settings = self._client.configuration
        cluster = {"server": settings.host, "certificate-authority": settings.ssl_ca_cert}
        named = {"name": "bench"}
        found = {
            "current-context": "bench",
            "contexts": [named | {"context": {"cluster": "bench", "user": "bench"}}],
            "clusters": [named | {"cluster": cluster}],
            "users": [named | {"user": {"token": made["status"]["token"]}}],
        }
        return str(yaml.safe_dump(found))

    async def keep_nodes_alive(self, scale: int) -> None:
        """Renew the nodes' Leases until cancelled, as kubelets do: kwok's own heartbeats are late while it starts pods,
        and the node controller would mark its pods as not ready."""
        names = [str(node["metadata"]["name"]) for node in objects.nodes(scale)]
        while True:
            await self._all(self._renew(name) for name in names)
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    async def _renew(self, node: str) -> None:
        body = {"spec": {"renewTime": datetime.now(UTC).isoformat().replace("+00:00", "Z")}}
        with contextlib.suppress(ClusterError):  # the next one is soon
            await self.ask("patch", f"{_LEASES}/{node}", body=body, content_type="application/merge-patch+json")

    async def ready_pods(self) -> int:
        """The number of engine pods that are ready.

        A pod that the node controller has marked as not ready is made ready again: kubelets do so, kwok does not.
        """
        ready, marked, more = 0, list[Object](), None
        while True:
            page = await self.ask("get", "/api/v1/pods", label_selector=_PODS, limit=500, _continue=more)
            for pod in page["items"]:
                conditions = (pod.get("status") or {}).get("conditions") or ()
                found = {each["type"]: each["status"] for each in conditions}
                ready += found.get("Ready") == "True"
                if (found.get("Ready"), found.get("ContainersReady")) == ("False", "True"):
                    marked.append(pod)
            more = page["metadata"].get("continue")
            if not more:
                break
        await self._all(map(self._make_ready, marked))
        return ready

    async def _make_ready(self, pod: Object) -> None:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
        body = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        with contextlib.suppress(ClusterError):  # it is gone, or the next look finds it again
            await self.ask("patch", path, body=body, content_type="application/strategic-merge-patch+json")

    async def requests(self) -> float:
        """Requests of the operator that the API server has admitted."""
        text = await request_text(self._dynamic, "/metrics", {}, seconds=_SECONDS, most=64 << 20)
        return dispatched(text, ACCOUNT)

    async def scale(self, number: int, replicas: int) -> None:
        """Change the replica bounds of one LLMDeployment."""
        scaling = {"minReplicas": replicas, "maxReplicas": replicas}
        where = f"{_resources(number)}/{objects.resource_name(number)[1]}"
        await self.ask("patch", where, body={"spec": {"scaling": scaling}}, content_type="application/merge-patch+json")

    async def replicas(self, number: int) -> int:
        """The replica count of its Deployment."""
        namespace, name = objects.resource_name(number)
        return int(
            (await self.ask("get", f"{collection('apps/v1', 'deployments', namespace)}/{name}"))["spec"]["replicas"]
        )

    async def remove(self, scale: int) -> None:
        """Delete everything but the CRD, which may have been there."""
        for namespace in (*objects.namespaces(scale), SYSTEM):
            await self._delete(f"/api/v1/namespaces/{namespace}")
        for path, thing in objects.account():
            await self._delete(f"{path}/{thing['metadata']['name']}")
        for node in objects.nodes(scale):
            await self._delete(f"/api/v1/nodes/{node['metadata']['name']}")

    async def _delete(self, path: str) -> None:
        try:
            await self.ask("delete", path)
        except ClusterError as error:
            if error.status not in (404, 409):
                raise

    @staticmethod
    async def _all(work: Iterable[Any]) -> None:
        slots = asyncio.Semaphore(10)

        async def one(each: Any) -> None:
            async with slots:
                await each

        await asyncio.gather(*(one(each) for each in work))


def _resources(number: int) -> str:
    return collection(*RESOURCES, objects.resource_name(number)[0])
