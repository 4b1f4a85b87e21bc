"""The canary revisions, from the EndpointSlices of the headless Service that the operator makes for each of them.

Kubernetes copies the labels of a Service to its slices, so that the weight arrives with the pods, by the watch that the
gateway has: it needs neither a watch of pods nor the right to one, and no label on the pods that serve already.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sluice import contract
from sluice_gateway.routing import Canary

Object = Mapping[str, Any]

_SERVICE: Final = "kubernetes.io/service-name"


def canaries_in(slices: Iterable[Object]) -> dict[tuple[str, str], Canary]:
    """The canary of each resource, by its namespace and name; of slices whose weights differ, the lowest applies."""
    found: dict[tuple[str, str], Canary] = {}
    for each in slices:
        metadata = each["metadata"]
        labels, namespace = metadata.get("labels") or {}, str(metadata["namespace"])
        resource = str(labels.get(contract.LABEL_INSTANCE, ""))
        if labels.get(_SERVICE) != f"{resource}{contract.CANARY_SUFFIX}":
            continue
        targets = (one.get("targetRef") or {} for one in each.get("endpoints") or ())
        pods = frozenset(f"{namespace}/{one['name']}" for one in targets if one.get("kind") == "Pod")
        known = found.get((namespace, resource), Canary(1.0, frozenset()))
        share = min(known.share, _share(labels.get(contract.LABEL_WEIGHT)))
        found[namespace, resource] = Canary(share, known.replicas | pods)
    return found


def _share(text: object) -> float:
    """The weight as a share; 0 for what is no percentage, so that no request goes to the canary."""
    percent = int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= 3 else 0
    return percent / 100.0 if percent <= 100 else 0.0
