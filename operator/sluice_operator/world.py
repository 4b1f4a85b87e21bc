"""The world that reconcile acts on, as four verbs over plain objects.

Two worlds exist: `kube.py` (a real API server) and `local.py` (processes on this machine, for `sluice up`).
Both run the same reconcile, decide and render; only what a verb does differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Object = dict[str, Any]  # one Kubernetes object as its JSON


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One LLMDeployment."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an engine's admin port answers."""

    pod: str
    host: str
    port: int


class WorldError(Exception):
    """The world did not do what was asked: says what was tried and what came back. Worth trying again later.

    `status` is the HTTP status of the API server's answer, 0 where there was none.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ForeignObject(Exception):
    """An object with a child's name exists and is not ours: it is left alone. The message names it."""


def is_owned(thing: Object, owner: Object) -> bool:
    """Whether `owner` is among the owners of an object."""
    references = thing.get("metadata", {}).get("ownerReferences") or ()
    return any(reference.get("uid") == owner["metadata"]["uid"] for reference in references)


class World(Protocol):
    """All methods raise `WorldError` (or a subclass) on trouble; reconcile is tried again with backoff.

    `kind` is one of Deployment, Pod, Service, ServiceAccount, PodDisruptionBudget, Secret, ConfigMap, LLMDeployment.
    """

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object, or None where there is none."""

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """The objects of a kind with these labels; an empty namespace means every one the world looks after."""

    async def apply(self, manifest: Object, *, owner: Object | None = None) -> Object:
        """Server-side apply: creates or changes only the fields given; a field we gave before and leave out is
        removed. Raises ForeignObject where the object exists and `owner` does not own it."""

    async def create(self, manifest: Object) -> Object | None:
        """Create, never change: None where it existed already."""

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete; no error where it is gone."""

    async def write_status(self, resource: Object, status: Object) -> None:
        """Replace the LLMDeployment's status."""

    async def emit_event(self, resource: Object, reason: str, message: str, *, warning: bool) -> None:
        """Tell it to people: an Event on the resource. Never raises for a lost one."""

    def held(self, namespace: str, name: str) -> int | None:
        """Requests that a front door holds until a replica is ready; None where there is no door that would."""

    def endpoint(self, pod: Object) -> Endpoint | None:
        """Where this pod's admin port answers; None while it has no address."""
