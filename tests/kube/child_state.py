"""The children of a resource as a state that can be compared: without what differs between any two resources."""

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Final

from sluice import contract
from sluice_operator.cluster.client import Object

CHILDREN: Final = (
    "ConfigMap",
    "Deployment",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Secret",
    "Service",
    "ServiceAccount",
)
_VOLATILE: Final = ("creationTimestamp", "generation", "managedFields", "ownerReferences", "resourceVersion", "uid")
_DERIVED: Final = (
    contract.ANNOTATION_TEMPLATE,
    "deployment.kubernetes.io/revision",
)  # the first digests the Secret's name


def state_of(children: Iterable[Object], neutral: Mapping[str, str]) -> dict[str, Object]:
    """Every child by kind and name. `neutral`: what replaces names and ids of the resource wherever they are.

    The sentinel of a Secret is left out: an operator that is killed before it makes one leaves none behind.
    """
    bare = json.dumps([_bare(each) for each in children if not _is_sentinel(each)])
    for mine, common in neutral.items():
        bare = bare.replace(mine, common)
    return {f"{each['kind']} {each['metadata']['name']}": each for each in json.loads(bare)}


def _is_sentinel(thing: Object) -> bool:
    owners = thing["metadata"].get("ownerReferences") or ()
    return thing["kind"] == "ConfigMap" and any(each["kind"] == "Secret" for each in owners)


def _bare(thing: Object) -> Object:
    """An object without its status, versions, times and the data that derive from the uid."""
    thing = copy.deepcopy(thing)
    thing.pop("status", None)
    for name in _DERIVED:
        thing["metadata"].get("annotations", {}).pop(name, None)
    for name in _VOLATILE:
        thing["metadata"].pop(name, None)
    if thing["kind"] == "Secret":
        thing.pop("data")
    if thing["kind"] == "Service":  # addresses that the API server assigns
        for name in ("clusterIP", "clusterIPs"):
            if thing["spec"].get(name, "None") not in ("None", ["None"]):
                del thing["spec"][name]
    return thing
