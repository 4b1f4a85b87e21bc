"""The fields of each kind that reconcile reads. The cache keeps no others, so five thousand pods take a few megabytes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.kinds import api_version

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"  # a second copy of the whole object
_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "ownerReferences",
)
_POD_ANNOTATIONS: Final = (contract.ANNOTATION_DELETION_COST, contract.ANNOTATION_TEMPLATE)
_NAMESPACE_ANNOTATIONS: Final = (contract.ANNOTATION_BUDGET,)


def slim(kind: str, thing: Mapping[str, Any]) -> Object:
    """Return the kept fields of an object as new containers. Items of a list have no kind, so it is added."""
    return {"apiVersion": api_version(kind), "kind": kind, **_SLIM.get(kind, _identity_only)(thing)}


def _whole(thing: Mapping[str, Any]) -> Object:
    """Everything but the record of the writers."""
    metadata = {name: value for name, value in thing["metadata"].items() if name != "managedFields"}
    if _LAST_APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != _LAST_APPLIED}
    return {**thing, "metadata": metadata}


def _deployment(thing: Mapping[str, Any]) -> Object:
    """Everything, and of the writers those of `spec.replicas`."""
    kept = _whole(thing)
    kept["metadata"]["managedFields"] = [
        {name: entry[name] for name in ("manager", "operation", "subresource") if name in entry}
        | {"fieldsV1": {"f:spec": {"f:replicas": {}}}}
        for entry in thing["metadata"].get("managedFields") or ()
        if "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return kept


def _pod(thing: Mapping[str, Any]) -> Object:
    """The status, the node, two annotations, of the containers arguments and limits (accelerators), and the admin Secret."""
    metadata, spec = _metadata(thing, _POD_ANNOTATIONS), thing.get("spec") or {}
    containers = [
        {name: each[name] for name in ("name", "args") if name in each}
        | {"resources": {"limits": (each.get("resources") or {}).get("limits") or {}}}
        for each in spec.get("containers") or ()
    ]
    kept = {"containers": containers} | ({"nodeName": spec["nodeName"]} if "nodeName" in spec else {})
    if volumes := [
        {"name": each["name"], "secret": {"secretName": (each.get("secret") or {}).get("secretName", "")}}
        for each in spec.get("volumes") or ()
        if each["name"] == contract.ADMIN_VOLUME
    ]:
        kept["volumes"] = volumes
    return {"metadata": metadata, "spec": kept, "status": thing.get("status") or {}}


def _config_map(thing: Mapping[str, Any]) -> Object:
    """The data too: a new operator continues with the estimates that its predecessor saved."""
    return {"metadata": _metadata(thing), "data": thing.get("data") or {}}


def _namespace(thing: Mapping[str, Any]) -> Object:
    return {"metadata": _metadata(thing, _NAMESPACE_ANNOTATIONS)}


def _identity_only(thing: Mapping[str, Any]) -> Object:
    """What shows whose object it is and whether it has changed."""
    return {"metadata": _metadata(thing)}


def _metadata(thing: Mapping[str, Any], annotations: Sequence[str] = ()) -> Object:
    """The fields that every kind keeps, and these annotations."""
    kept = {name: thing["metadata"][name] for name in _METADATA if name in thing["metadata"]}
    given = thing["metadata"].get("annotations") or {}
    read = {name: given[name] for name in annotations if name in given}
    return kept | ({"annotations": read} if read else {})


_SLIM: Final[Mapping[str, Callable[[Mapping[str, Any]], Object]]] = {
    contract.KIND: _whole,
    "Deployment": _deployment,
    "Pod": _pod,
    "ConfigMap": _config_map,
    "Namespace": _namespace,
}
