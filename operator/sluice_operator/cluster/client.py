"""The cluster client interface of reconcile, over plain objects.

It has two implementations: `kube.py` (a real API server) and `local/` (processes on this machine, for `sluice up`).
Reconcile, decide and render are the same for both.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sluice_kube.errors import ClusterError

__all__ = [
    "ClusterClient",
    "ClusterError",
    "Endpoint",
    "ForeignObject",
    "Key",
    "Object",
    "Objects",
    "OwnerDeleted",
    "check_owner",
    "controller_of",
    "is_owned",
    "served_name",
]


Object = dict[str, Any]  # one Kubernetes object as its JSON
Objects = list[Object]  # in classes whose method `list` hides the type


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Namespace and name of one LLMDeployment."""

    namespace: str
    name: str

    @property
    def phase(self) -> float:
        """A number in [0, 1), always the same for this key. It spreads periodic work on many resources over a period."""
        return zlib.crc32(f"{self.namespace}/{self.name}".encode()) / 2**32


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of an engine's admin port, with the tokens of its reads, which an engine may ignore, and of its writes."""

    pod: str
    host: str
    port: int
    read_token: str = field(default="", repr=False)
    admin_token: str = field(default="", repr=False)


class ForeignObject(Exception):
    """An object with the name of a child exists and has another owner; it is not changed. The message names it."""


class OwnerDeleted(Exception):
    """A child is not created because its owner is deleted, is being deleted, or has been recreated."""


def is_owned(thing: Object, owner: Object) -> bool:
    """True if `owner` is among the owners of the object `thing`."""
    references = thing.get("metadata", {}).get("ownerReferences") or ()
    return any(reference.get("uid") == owner["metadata"]["uid"] for reference in references)


def controller_of(thing: Object) -> str:
    """Return the uid of the controller owner of an object; empty without one."""
    references = thing.get("metadata", {}).get("ownerReferences") or ()
    return next((str(each.get("uid", "")) for each in references if each.get("controller")), "")


def served_name(resource: Object) -> Any:
    """Return the model name that clients of this LLMDeployment send; a document that is not valid may have any value."""
    model = (resource.get("spec") or {}).get("model")
    given = model.get("servedName") if isinstance(model, dict) else None
    return given or resource["metadata"]["name"]


def seniority(resource: Object) -> tuple[str, str, str]:
    """creationTimestamp, name and namespace of an LLMDeployment: of two with one served name the smaller one serves it.

    The gateway has the same order (`ServedModel`).
    """
    metadata = resource["metadata"]
    return str(metadata.get("creationTimestamp", "")), str(metadata["name"]), str(metadata.get("namespace", ""))


def oldest_of(resources: Iterable[Object], name: str) -> Key | None:
    """Return the oldest of these LLMDeployments with this served name."""
    first = min((seniority(each) for each in resources if served_name(each) == name), default=None)
    return None if first is None else Key(first[2], first[1])


def check_owner(live: Object | None, owner: Object) -> None:
    """Raise OwnerDeleted unless `live`, the newest state of `owner`, has the same uid and is not being deleted."""
    metadata = owner["metadata"]
    what = f"{owner.get('kind', 'owner')} {metadata.get('namespace', '')}/{metadata['name']}"
    if live is None:
        raise OwnerDeleted(f"{what} is deleted")
    if live["metadata"].get("uid") != metadata.get("uid"):
        raise OwnerDeleted(f"{what} is deleted and has been recreated")
    if live["metadata"].get("deletionTimestamp"):
        raise OwnerDeleted(f"{what} is being deleted")


class ClusterClient(Protocol):
    """The cluster. All methods raise `ClusterError` (or a subclass) on failure; reconcile is then retried with backoff.

    `kind` is one of Deployment, ReplicaSet, Pod, Service, ServiceAccount, PodDisruptionBudget, Secret, ConfigMap,
    NetworkPolicy, PodMonitor, LLMDeployment, and Namespace, which is read with an empty `namespace`.
    """

    async def serves(self, kind: str) -> bool:
        """Return whether the cluster has this kind, which not every cluster has. The answer may be minutes old."""

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return the object, or None if it does not exist."""

    async def child(self, kind: str, namespace: str, name: str, owner: Object) -> Object | None:
        """Return the object if `owner` owns it, or if it has lost its owner reference and is provably the owner's."""

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """Return the objects of a kind with these labels; an empty namespace means all namespaces."""

    async def controlled_by(self, kind: str, namespace: str, uid: str, labels: Mapping[str, str]) -> Objects:
        """Return the objects whose controller has this uid. They have these labels, which narrow a request."""

    async def serving(self, namespace: str, name: str) -> Objects:
        """Return the LLMDeployments of the namespace with this served name."""

    async def oldest_serving(self, name: str) -> Key | None:
        """Return the oldest LLMDeployment with this served name in all managed namespaces; None while it is not known."""

    def holds(self, kind: str) -> bool:
        """True if a read of the kind needs no request, and a change of such an object soon causes a pass."""

    async def apply(self, manifest: Object, *, owner: Object | None = None) -> Object:
        """Server-side apply: creates or changes only the given fields, and returns the object.

        Fields of the previous apply that are missing now are removed. A child that has lost its owner reference is adopted.
        Raises ForeignObject if the object exists and is no child of `owner`, and OwnerDeleted if it is to be created or adopted
        and `owner` is deleted or being deleted.
        """

    async def create(self, manifest: Object, *, owner: Object | None = None) -> Object | None:
        """Create the object; return None, without a change, if it exists. Raises OwnerDeleted as `apply` does."""

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete the object; no error if it does not exist."""

    async def write_status(self, resource: Object, status: Object) -> None:
        """Replace the whole status of the LLMDeployment `resource`."""

    async def emit_event(self, resource: Object, reason: str, message: str, *, warning: bool) -> None:
        """Emit an Event on the resource. Never raises for a lost Event."""

    def held(self, namespace: str, name: str) -> int | None:
        """Return the number of requests that the gateway holds until a replica is ready; None if no gateway does."""

    def endpoint(self, pod: Object) -> Endpoint | None:
        """Return the address of this pod's admin port; None while it has none."""
