"""In-memory objects with the semantics that reconcile needs: server-side apply by one field manager.

Apply changes only the given fields, and removes fields of the previous apply that are missing now. Lists are atomic.
Reads return copies, so that callers share no state with the store.
"""

import copy
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from sluice_operator.cluster.client import ForeignObject, Object

ObjectKey = tuple[str, str, str]  # kind, namespace, name


def object_key(manifest: Object) -> ObjectKey:
    """Return the kind, namespace and name of an object."""
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def timestamp(seconds: float) -> str:
    """Format seconds since the epoch as RFC 3339 in UTC, to the second, as the API server does."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def merged(current: Mapping[str, Any], desired: Mapping[str, Any]) -> Object:
    """Return `current` overridden by `desired`: dicts are merged, all other values replaced."""
    result = dict(current)
    for field, value in desired.items():
        before = result.get(field)
        result[field] = merged(before, value) if isinstance(value, dict) and isinstance(before, dict) else value
    return result


def pruned(current: Mapping[str, Any], before: Mapping[str, Any], desired: Mapping[str, Any]) -> Object:
    """Return `current` without the leaves that are in `before` and not in `desired`."""
    result = dict(current)
    for field, value in before.items():
        if field not in result:
            continue
        if isinstance(value, dict) and isinstance(result[field], dict):
            later = desired.get(field)
            kept = pruned(result[field], value, later if isinstance(later, dict) else {})
            if kept or field in desired:
                result[field] = kept
            else:
                del result[field]
        elif field not in desired:
            del result[field]
    return result


def has_labels(item: Object, labels: Mapping[str, str]) -> bool:
    """True if the object has all of these labels."""
    own = item.get("metadata", {}).get("labels") or {}
    return all(own.get(name) == value for name, value in labels.items())


class ObjectStore:
    """Objects by kind, namespace and name, with server-side apply."""

    def __init__(self, wall: Callable[[], float]) -> None:
        """`wall()` returns seconds since the epoch, for creation timestamps."""
        self._wall = wall
        self._objects: dict[ObjectKey, Object] = {}
        self._applied: dict[ObjectKey, Object] = {}
        self._version = 0

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return a copy of the object; None if it does not exist."""
        return copy.deepcopy(self._objects.get((kind, namespace, name)))

    def list_all(self, kind: str) -> list[Object]:
        """Return copies of all objects of the kind in all namespaces."""
        return [copy.deepcopy(item) for (its_kind, _, _), item in self._objects.items() if its_kind == kind]

    def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """Return copies of the objects of the kind with these labels in the namespace; an empty namespace means all."""
        return [
            copy.deepcopy(item)
            for (its_kind, its_namespace, _), item in self._objects.items()
            if its_kind == kind and namespace in ("", its_namespace) and has_labels(item, labels)
        ]

    def insert(self, manifest: Object, owner: Object) -> Object:
        """Create as a writer other than the one of `apply`: a later apply never removes these fields."""
        base = self._fresh()
        base["metadata"]["ownerReferences"] = [_owner_reference(owner)]
        return self._put(object_key(manifest), merged(base, copy.deepcopy(manifest)))

    def apply(self, manifest: Object, *, owner: Object | None = None) -> Object:
        """Server-side apply. Raises ForeignObject if the object exists and `owner` is not among its owners."""
        key = object_key(manifest)
        current = self._objects.get(key)
        desired = {field: value for field, value in copy.deepcopy(manifest).items() if field != "status"}
        if owner is not None and current is not None and not _owned_by(current, owner):
            kind, namespace, name = key
            raise ForeignObject(f"{kind} {namespace}/{name} exists and does not belong to {owner['metadata']['name']}")
        if owner is not None:
            desired["metadata"].setdefault("ownerReferences", [_owner_reference(owner)])
        base = current if current is not None else self._fresh()
        result = merged(pruned(base, self._applied.get(key, {}), desired), desired)
        self._applied[key] = desired
        if current is not None and result == current:
            return copy.deepcopy(current)
        generation = result["metadata"].get("generation", 0)
        changed = current is None or result.get("spec") != current.get("spec")
        result["metadata"]["generation"] = generation + 1 if changed else generation
        return self._put(key, result)

    def create(self, manifest: Object) -> Object | None:
        """Create the object; return None if it exists."""
        if object_key(manifest) in self._objects:
            return None
        return self.apply(manifest)

    def delete(self, kind: str, namespace: str, name: str) -> bool:
        """Delete the object; return True if it existed."""
        self._applied.pop((kind, namespace, name), None)
        return self._objects.pop((kind, namespace, name), None) is not None

    def set_status(self, kind: str, namespace: str, name: str, status: Object) -> None:
        """Replace the status of an object; no effect if it does not exist."""
        current = self._objects.get((kind, namespace, name))
        if current is not None and current.get("status") != status:
            self._put((kind, namespace, name), {**current, "status": copy.deepcopy(status)})

    def _put(self, key: ObjectKey, item: Object) -> Object:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._objects[key] = item
        return copy.deepcopy(item)

    def _fresh(self) -> Object:
        return {"metadata": {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp(self._wall())}}


def _owner_reference(owner: Object) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner.get("apiVersion", ""),
        "kind": owner.get("kind", ""),
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def _owned_by(item: Object, owner: Object) -> bool:
    uid = owner["metadata"].get("uid")
    return any(reference.get("uid") == uid for reference in item["metadata"].get("ownerReferences") or ())
