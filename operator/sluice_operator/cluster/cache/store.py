"""The objects of the watched kinds, indexed by name, by the uid of their controller, and by served name.

An object is replaced only by a newer one. So neither an event from before the operator's own write nor two events in
the wrong order can hide that write (the mutation cache of controller-runtime's users). Deletions are remembered for the
same reason, until the next list. Objects are kept packed: they take a fiftieth of the memory of a dict, and no reader can
change them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sluice import contract
from sluice_operator.cluster.cache.packing import Packing
from sluice_operator.cluster.cache.slim import slim
from sluice_operator.cluster.client import Key, Object, controller_of, seniority, served_name

Name = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True)
class _Entry:
    version: str
    packed: bytes
    key: Key | None  # of the LLMDeployment that it is or belongs to
    index: tuple[str, str]  # (namespace, served name) of an LLMDeployment, ("", uid of the controller) of the others
    seniority: tuple[str, str, str] = ("", "", "")  # of an LLMDeployment


@dataclass(slots=True)
class _Kind:
    """All objects of one kind."""

    listed: str = ""  # resourceVersion of the newest list; empty before the first
    entries: dict[Name, _Entry] = field(default_factory=dict)
    indexed: defaultdict[tuple[str, str], set[Name]] = field(default_factory=lambda: defaultdict(set))
    named: defaultdict[str, set[Name]] = field(default_factory=lambda: defaultdict(set))  # by served name
    deleted: dict[Name, str] = field(default_factory=dict)  # since that list, with the version of the deletion
    packing: Packing = field(default_factory=Packing)

    def unpacked(self, where: Name) -> Object:
        return self.packing.unpack(self.entries[where].packed)


class ObjectCache:
    """The newest known state of every object of `kinds`. Not thread-safe: it belongs to the event loop."""

    def __init__(self, kinds: Collection[str]) -> None:
        self.kinds: Final = tuple(kinds)
        self._kinds = {kind: _Kind() for kind in kinds}

    def holds(self, kind: str) -> bool:
        """True if the cache has all objects of the kind, so that reads need no request."""
        found = self._kinds.get(kind)
        return found is not None and bool(found.listed)

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return the object, or None if it is not known."""
        found = self._kinds[kind]
        return found.unpacked((namespace, name)) if (namespace, name) in found.entries else None

    def version(self, kind: str, namespace: str, name: str) -> str:
        """Return the resourceVersion of the object; empty if it is not known."""
        entry = self._kinds[kind].entries.get((namespace, name)) if kind in self._kinds else None
        return "" if entry is None else entry.version

    def controlled_by(self, kind: str, uid: str) -> list[Object]:
        """Return the objects whose controller has this uid, by name."""
        return self._indexed(kind, ("", uid))

    def serving(self, namespace: str, name: str) -> list[Object]:
        """Return the LLMDeployments of the namespace with this served name."""
        return self._indexed(contract.KIND, (namespace, name))

    def oldest_serving(self, name: str) -> Key | None:
        """Return the oldest LLMDeployment of all namespaces with this served name."""
        found = self._kinds[contract.KIND]
        first = min((found.entries[where].seniority for where in found.named.get(name, ())), default=None)
        return None if first is None else Key(first[2], first[1])

    def put(self, kind: str, thing: Mapping[str, Any]) -> bool:
        """Store an object as a watch, a list or the answer of a write has it. Returns True if it is newer than what is
        known. Objects of other kinds are ignored."""
        if kind not in self._kinds:
            return False
        found, where, version = self._kinds[kind], _name(thing), _version(thing)
        known = found.entries.get(where)
        newest = known.version if known else found.deleted.get(where, found.listed)
        if newest and not is_newer(version, newest):
            return False
        self._drop(found, where)
        kept = slim(kind, thing)
        entry = _Entry(version, found.packing.pack(kept), key_of(kind, kept), _index(kind, kept))
        if kind == contract.KIND:
            entry = replace(entry, seniority=seniority(kept))
            found.named[entry.index[1]].add(where)
        found.entries[where] = entry
        found.indexed[entry.index].add(where)
        return True

    def remove(self, kind: str, thing: Mapping[str, Any]) -> bool:
        """Remove an object that was deleted at its resourceVersion. Returns False if a newer one is known: it was recreated."""
        if kind not in self._kinds:
            return False
        found, where, version = self._kinds[kind], _name(thing), _version(thing)
        known = found.entries.get(where)
        if known is not None and known.version != version and not is_newer(version, known.version):
            return False
        before = found.deleted.get(where, "")
        found.deleted[where] = version if not before or is_newer(version, before) else before
        return self._drop(found, where)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove an object after the operator's own deletion, whose version the API server does not return."""
        if version := self.version(kind, namespace, name):
            self.remove(kind, {"metadata": {"namespace": namespace, "name": name, "resourceVersion": version}})

    def replace(self, kind: str, things: Iterable[Mapping[str, Any]], version: str) -> set[Key]:
        """Take a complete list, made at `version`. Returns the LLMDeployments whose objects it changed.

        Objects that are not in it are removed, except those that are newer than the list.
        """
        found, listed, changed = self._kinds[kind], set[Name](), set[Key | None]()
        for thing in things:
            listed.add(_name(thing))
            if self.put(kind, thing):
                changed.add(found.entries[_name(thing)].key)
        for where in found.entries.keys() - listed:
            entry = found.entries[where]
            if not is_newer(entry.version, version):
                changed.add(entry.key)
                self._drop(found, where)
        found.deleted = {where: deleted for where, deleted in found.deleted.items() if is_newer(deleted, version)}
        found.listed = version
        return {key for key in changed if key is not None}

    def _indexed(self, kind: str, index: tuple[str, str]) -> list[Object]:
        found = self._kinds[kind]
        return [found.unpacked(where) for where in sorted(found.indexed.get(index, ()))]

    @staticmethod
    def _drop(found: _Kind, where: Name) -> bool:
        entry = found.entries.pop(where, None)
        if entry is None:
            return False
        _discard(found.indexed, entry.index, where)
        if entry.seniority[1]:
            _discard(found.named, entry.index[1], where)
        return True


def _discard(indexed: dict[Any, set[Name]], index: object, where: Name) -> None:
    indexed[index].discard(where)
    if not indexed[index]:
        del indexed[index]


def is_newer(version: str, than: str) -> bool:
    """True if the first resourceVersion is the newer one. They are integers that grow (KEP-5504, Kubernetes 1.35; every
    API server over etcd before it); other texts are compared for equality only."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than


def key_of(kind: str, thing: Mapping[str, Any]) -> Key | None:
    """Return the LLMDeployment that this object is, or that its labels name; None without one."""
    metadata = thing["metadata"]
    labels = metadata.get("labels") or {}
    name = metadata["name"] if kind == contract.KIND else labels.get(contract.LABEL_INSTANCE)
    return Key(str(metadata.get("namespace", "")), str(name)) if name else None


def _index(kind: str, thing: Object) -> tuple[str, str]:
    if kind == contract.KIND:
        return str(thing["metadata"].get("namespace", "")), str(served_name(thing))
    return "", controller_of(thing)


def _name(thing: Mapping[str, Any]) -> Name:
    return str(thing["metadata"].get("namespace", "")), str(thing["metadata"]["name"])


def _version(thing: Mapping[str, Any]) -> str:
    return str(thing["metadata"].get("resourceVersion", ""))
