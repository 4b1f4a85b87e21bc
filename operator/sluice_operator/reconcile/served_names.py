"""Two resources with the same served name in a namespace: the older one wins."""

from sluice_operator.cluster.client import Object
from sluice_operator.reconcile.context import Context, Target


async def name_conflict(target: Target, context: Context) -> str:
    """Return a sentence that names an older resource with the same served name; empty if none exists.

    The older resource wins, so that a new one never disturbs a running one. Raises ClusterError.
    """
    name = target.resource.served_name
    others = await context.cluster.serving(target.key.namespace, name)
    oldest = min(map(_seniority, (*others, target.document)))[1]
    return "" if oldest == target.key.name else f"LLMDeployment {oldest} already serves the name {name!r} here"


def _seniority(document: Object) -> tuple[str, str]:
    """creationTimestamp and metadata.name: the older resource is the smaller one."""
    metadata = document["metadata"]
    return str(metadata.get("creationTimestamp", "")), str(metadata["name"])
