"""Two resources with the same served name: the older one wins.

In a namespace the younger one gets no children. In two namespaces both run, because users of one namespace must not stop the
models of another; but a gateway over both serves the older one only.
"""

from sluice_operator.cluster.client import seniority
from sluice_operator.reconcile.context import Context, Target


async def name_conflict(target: Target, context: Context) -> str:
    """Return a sentence that names an older resource with the same served name; empty if none exists.

    The older resource wins, so that a new one never disturbs a running one. Raises ClusterError.
    """
    name = target.resource.served_name
    others = await context.cluster.serving(target.key.namespace, name)
    oldest = min(map(seniority, (*others, target.document)))[1]
    return "" if oldest == target.key.name else f"LLMDeployment {oldest} already serves the name {name!r} here"


async def unrouted(target: Target, context: Context) -> str:
    """Return a sentence that names the older resource of another namespace which the gateway serves by this name; empty if
    none exists, no gateway is installed, or its clients use its own Service because the gateway speaks no HTTPS.

    Raises ClusterError.
    """
    name, has_tls = target.resource.served_name, target.resource.spec.auth.tls_secret_ref is not None
    if has_tls or not context.settings.gateway_service:
        return ""
    oldest = await context.cluster.oldest_serving(name)
    if oldest is None or oldest.namespace == target.key.namespace:
        return ""
    return f"The gateway serves the name {name!r} by the older LLMDeployment {oldest.namespace}/{oldest.name}, and not by this one"
