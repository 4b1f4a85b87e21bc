"""What managedFields, the record of an object's writers, shows of a child: that it is ours, and which fields exclude ours.

Server-side apply leaves alone what others own. Where that excludes a field of ours, such as `minAvailable` beside
`maxUnavailable`, the API server finds the object invalid, for ever. With these fields in the operator's own entry, as
`kubectl apply --server-side` moves those of its older form, the next apply removes what the manifest does not have, in one
write. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final

from sluice import contract
from sluice_operator.cluster.client import Object, controller_of

Fields = dict[str, Any]  # in the form of managedFields: nested keys, empty at the leaves

_LEFT_ALONE: Final = ("f:metadata", "f:status")  # labels and annotations of others exclude none of ours


def is_orphan_of(thing: Object, owner: Object) -> bool:
    """True if the object has no controller and is provably a child of `owner`: it has the labels of the owner's children, and
    the operator has applied them.

    The controllers of Kubernetes adopt by labels alone; but any user may give an object the labels of a child.
    """
    metadata = thing["metadata"]
    if controller_of(thing) or not _child_labels(owner).items() <= (metadata.get("labels") or {}).items():
        return False
    ours: Fields = next((each["fieldsV1"] for each in metadata.get("managedFields") or () if _is_ours(each)), {})
    applied = (ours.get("f:metadata") or {}).get("f:labels") or {}
    return all(f"f:{label}" in applied for label in _child_labels(owner))


def _child_labels(owner: Object) -> dict[str, str]:
    """The labels that name the resource and the operator; that of the watches may be lost."""
    return {
        contract.LABEL_INSTANCE: str(owner["metadata"]["name"]),
        contract.LABEL_MANAGED_BY: contract.MANAGED_BY,
    }


def taken_over(live: Object, manifest: Object) -> list[Object] | None:
    """Return the managedFields in which the operator also owns what others have set outside the metadata; None if there is
    nothing of that kind, and for what is no child. The replica count stays with its owner unless the manifest has one."""
    if not manifest["metadata"].get("ownerReferences"):
        return None
    entries = live["metadata"].get("managedFields") or ()
    ours = next((each for each in entries if _is_ours(each)), None)
    if ours is None:
        return None
    fields, others = ours["fieldsV1"], list[Object]()
    for entry in entries:
        if entry is ours:
            continue
        theirs, rest = _split(entry, ours, keeps_replicas="replicas" not in (manifest.get("spec") or {}))
        fields = _union(fields, theirs)
        if rest:
            others.append(entry | {"fieldsV1": rest})
    return None if fields == ours["fieldsV1"] else [ours | {"fieldsV1": fields}, *others]


def _is_ours(entry: Mapping[str, Any]) -> bool:
    found = entry.get("manager"), entry.get("operation"), entry.get("subresource") or ""
    return found == (contract.FIELD_MANAGER, "Apply", "")


def _split(entry: Object, ours: Object, *, keeps_replicas: bool) -> tuple[Fields, Fields]:
    """Return the fields of another writer's entry to take over, and the rest."""
    fields = entry.get("fieldsV1") or {}
    if entry.get("subresource") or entry.get("apiVersion") != ours.get("apiVersion"):
        return {}, fields
    theirs = {name: value for name, value in fields.items() if name not in _LEFT_ALONE}
    rest = {name: value for name, value in fields.items() if name in _LEFT_ALONE}
    spec = theirs.get("f:spec") or {}
    if keeps_replicas and "f:replicas" in spec:
        theirs["f:spec"] = {name: value for name, value in spec.items() if name != "f:replicas"}
        rest["f:spec"] = {"f:replicas": spec["f:replicas"]}
    return theirs, rest


def _union(one: Fields, other: Fields) -> Fields:
    return one | {name: _union(one.get(name) or {}, value) for name, value in other.items()}
