"""Others who want the same: a second resource with the same served name, another writer of the Deployment's count."""

from dataclasses import replace
from typing import Any

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.context import Context, Remembered
from sluice_operator.world import Key, Object

_LOOK_AGAIN_SECONDS = 30.0


async def same_name(key: Key, document: Object, resource: LLMDeployment, context: Context) -> str:
    """Who serves the same name in this namespace and was there first, as a sentence; empty where nobody is.

    The elder wins, so that a newcomer never disturbs what runs. Listed again at most every 30 s. Raises WorldError.
    """
    metadata = document["metadata"]
    generation = int(metadata.get("generation", 0))
    remembered, now = context.memories.get(key, Remembered()), context.clock()
    known = remembered.conflict
    if known is not None and known[0] == generation and now - known[1] < _LOOK_AGAIN_SECONDS:
        return known[2]
    elder = ""
    for other in await context.world.list(contract.KIND, key.namespace, {}):
        if other["metadata"]["name"] == key.name or _served_name(other) != resource.served_name:
            continue
        if _seniority(other) < _seniority(document):
            elder = f"LLMDeployment {other['metadata']['name']} already serves the name {resource.served_name!r} here"
    context.memories[key] = replace(remembered, conflict=(generation, now, elder))
    return elder


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


def other_writer(deployment: Object, before: int, current: int) -> str:
    """Who changed the count behind our back, as the start of a sentence."""
    who = replicas_manager(deployment)
    name = f"{who!r}" if who and who != contract.FIELD_MANAGER else "Another writer"
    return f"{name} changed the Deployment's replicas from {before} to {current}"
