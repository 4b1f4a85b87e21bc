"""Conflicts over shared state: a second resource with the same served name, an external writer of the replica count."""

from typing import Any

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Key, Object
from sluice_operator.reconcile.memory import Context, ServedNames

_LOOK_AGAIN_SECONDS = 30.0  # between two lists of a namespace
_NEWCOMER_SECONDS = 1.0  # a thousand resources created together cause one list per second, not a thousand


async def same_name(key: Key, document: Object, resource: LLMDeployment, context: Context) -> str:
    """Return a sentence that names an older resource with the same served name in the namespace; empty if none exists.

    The older resource wins, so that a new one never disturbs a running one. All resources of a namespace share one
    list, renewed every 30 s, and after 1 s for a resource that is not in it. Raises ClusterError.
    """
    book, now, me = context.names.get(key.namespace), context.clock(), _seniority(document)
    known = book is not None and me in book.holders.get(resource.served_name, ())
    if book is None or now - book.at >= (_LOOK_AGAIN_SECONDS if known else _NEWCOMER_SECONDS):
        book = context.names[key.namespace] = await _listed(key.namespace, context)
    holders = book.holders.setdefault(resource.served_name, set())
    holders.add(me)
    elder = min(holders)[1]
    return "" if elder == key.name else f"LLMDeployment {elder} already serves the name {resource.served_name!r} here"


async def _listed(namespace: str, context: Context) -> ServedNames:
    book = ServedNames(context.clock())
    for each in await context.cluster.list(contract.KIND, namespace, {}):
        book.holders.setdefault(_served_name(each), set()).add(_seniority(each))
    return book


def _served_name(document: Object) -> Any:
    model = (document.get("spec") or {}).get("model")
    given = model.get("servedName") if isinstance(model, dict) else None
    return given or document["metadata"]["name"]


def _seniority(document: Object) -> tuple[str, str]:
    metadata = document["metadata"]
    return str(metadata.get("creationTimestamp", "")), str(metadata["name"])


def replicas_manager(deployment: Object) -> str:
    """Return the field manager of the Deployment's replicas according to `managedFields`; empty if there is none.

    Several managers may own the field with the same value; then a manager other than this operator is returned.
    """
    owners = [
        str(entry.get("manager", ""))
        for entry in deployment.get("metadata", {}).get("managedFields") or ()
        if "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {}) and entry.get("subresource") != "status"
    ]
    return next((owner for owner in owners if owner != contract.FIELD_MANAGER), owners[0] if owners else "")
