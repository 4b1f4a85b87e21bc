"""Others who want the same: a second resource with the same served name, another writer of the Deployment's count."""

from typing import Any

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.context import Context, ServedNames
from sluice_operator.world import Key, Object

_LOOK_AGAIN_SECONDS = 30.0
_NEWCOMER_SECONDS = 1.0  # a thousand resources that are created together are one list a second, not a thousand


async def same_name(key: Key, document: Object, resource: LLMDeployment, context: Context) -> str:
    """Who serves the same name in this namespace and was there first, as a sentence; empty where nobody is.

    The elder wins, so that a newcomer never disturbs what runs. One list per namespace serves all of its resources: it
    is taken again every 30 s, and for a resource that is not in it. Raises WorldError.
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
    for each in await context.world.list(contract.KIND, namespace, {}):
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
    """Who last wrote the Deployment's replicas, by the API server's books; empty where it keeps none.

    Several may own the field with one value: whoever is not us is named then.
    """
    owners = [
        str(entry.get("manager", ""))
        for entry in deployment.get("metadata", {}).get("managedFields") or ()
        if "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {}) and entry.get("subresource") != "status"
    ]
    return next((owner for owner in owners if owner != contract.FIELD_MANAGER), owners[0] if owners else "")
