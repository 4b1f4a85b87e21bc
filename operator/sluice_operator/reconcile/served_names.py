"""Two resources with the same served name in a namespace: the older one wins."""

from dataclasses import dataclass, field
from typing import Any, Final

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.reconcile.context import Context, Target

_LIST_SECONDS: Final = 30.0  # between two lists of a namespace
_NEW_RESOURCE_SECONDS: Final = 1.0  # a thousand resources created together cause one list per second, not a thousand

# creationTimestamp and metadata.name: the older resource is the smaller one
_Seniority = tuple[str, str]


@dataclass(slots=True)
class _Listing:
    """The served names of one namespace, as last listed."""

    at: float  # monotonic seconds
    holders: dict[Any, set[_Seniority]] = field(default_factory=dict)  # by served name


class ServedNames:
    """The served names of all resources by namespace; all resources of a namespace share one list."""

    def __init__(self) -> None:
        self._listings: dict[str, _Listing] = {}

    @property
    def namespaces(self) -> frozenset[str]:
        """Namespaces whose names are stored."""
        return frozenset(self._listings)

    async def conflict(self, target: Target, context: Context) -> str:
        """Return a sentence that names an older resource with the same served name; empty if none exists.

        The older resource wins, so that a new one never disturbs a running one. The list is renewed every 30 s, and
        after 1 s for a resource that is not in it. Raises ClusterError.
        """
        namespace, now, own = target.key.namespace, context.clock(), _seniority(target.document)
        name = target.resource.served_name
        listing = self._listings.get(namespace)
        known = listing is not None and own in listing.holders.get(name, ())
        if listing is None or now - listing.at >= (_LIST_SECONDS if known else _NEW_RESOURCE_SECONDS):
            listing = self._listings[namespace] = await _list(namespace, context)
        holders = listing.holders.setdefault(name, set())
        holders.add(own)
        oldest = min(holders)[1]
        return "" if oldest == target.key.name else f"LLMDeployment {oldest} already serves the name {name!r} here"

    def forget(self, namespace: str) -> None:
        """Drop the names of a namespace without resources."""
        self._listings.pop(namespace, None)


async def _list(namespace: str, context: Context) -> _Listing:
    listing = _Listing(context.clock())
    for each in await context.cluster.list(contract.KIND, namespace, {}):
        listing.holders.setdefault(_served_name(each), set()).add(_seniority(each))
    return listing


def _served_name(document: Object) -> Any:
    model = (document.get("spec") or {}).get("model")
    given = model.get("servedName") if isinstance(model, dict) else None
    return given or document["metadata"]["name"]


def _seniority(document: Object) -> _Seniority:
    metadata = document["metadata"]
    return str(metadata.get("creationTimestamp", "")), str(metadata["name"])
