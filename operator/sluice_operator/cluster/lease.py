"""The `coordination.k8s.io/Lease` of the operator: what leader election reads and writes, and its store on an API server."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from kubernetes.aio.client import ApiClient

from sluice_kube.api import dynamic_client, request
from sluice_operator.cluster.client import ClusterError, Object
from sluice_operator.cluster.kinds import path


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The Lease as read. `version` changes with every write by any client."""

    holder: str
    duration: float
    version: str
    transitions: int = 0


class LeaseStore(Protocol):
    """Storage of the Lease. All methods raise ClusterError."""

    async def read(self) -> LeaseRecord | None:
        """Return the Lease, or None if it does not exist."""

    async def create(self, holder: str, duration: float) -> bool:
        """Create the Lease; False if it exists already."""

    async def replace(self, record: LeaseRecord, holder: str, duration: float) -> bool:
        """Replace the Lease if it still has the version of `record`; False otherwise."""


class KubeLease:
    """The Lease on an API server, with optimistic locking by resourceVersion."""

    def __init__(self, client: ApiClient, namespace: str, name: str) -> None:
        self._dynamic = dynamic_client(client)
        self._where = {"name": name, "namespace": namespace}
        self._live: Object = {}

    async def read(self) -> LeaseRecord | None:
        """Return the Lease, or None if it does not exist."""
        try:
            self._live = await request(self._dynamic, "get", path("Lease", **self._where))
        except ClusterError as error:
            if error.status == 404:
                return None
            raise
        spec = self._live.get("spec") or {}
        return LeaseRecord(
            holder=spec.get("holderIdentity") or "",
            duration=float(spec.get("leaseDurationSeconds") or 0),
            version=self._live["metadata"]["resourceVersion"],
            transitions=int(spec.get("leaseTransitions") or 0),
        )

    async def create(self, holder: str, duration: float) -> bool:
        """Create the Lease; False if it exists already."""
        spec = {**self._spec(holder, duration), "acquireTime": _now(), "leaseTransitions": 0}
        where = path("Lease", self._where["namespace"])
        return await self._write("post", where, {**self._head(), "spec": spec})

    async def replace(self, record: LeaseRecord, holder: str, duration: float) -> bool:
        """Replace the Lease if it still has the version of `record`; False otherwise."""
        spec = {**(self._live.get("spec") or {}), **self._spec(holder, duration)}
        if holder != record.holder:
            spec |= {"acquireTime": _now(), "leaseTransitions": record.transitions + 1}
        body = self._head()
        body["metadata"]["resourceVersion"] = record.version
        return await self._write("put", path("Lease", **self._where), {**body, "spec": spec})

    def _head(self) -> Object:
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": dict(self._where)}

    @staticmethod
    def _spec(holder: str, duration: float) -> Object:
        return {"holderIdentity": holder, "leaseDurationSeconds": int(duration), "renewTime": _now()}

    async def _write(self, method: str, where: str, body: Object) -> bool:
        try:
            await request(self._dynamic, method, where, body=body)
        except ClusterError as error:
            if error.status in (404, 409):
                return False
            raise
        return True


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
