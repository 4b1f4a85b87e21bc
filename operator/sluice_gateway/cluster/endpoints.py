"""Endpoints of engines, from the EndpointSlices of the headless Service that the operator makes for each LLMDeployment."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sluice import contract

Object = Mapping[str, Any]

SLICES: Final = ("discovery.k8s.io/v1", "endpointslices")
SELECTOR: Final = f"{contract.LABEL_NAME}={contract.ENGINE_APP},service.kubernetes.io/headless"
_SERVICE: Final = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A ready engine pod of one LLMDeployment. `host` is an address as it stands in a URL."""

    namespace: str
    resource: str
    pod: str
    host: str
    port: int
    zone: str = ""


def ready_endpoints(slices: Iterable[Object]) -> list[Endpoint]:
    """The ready pods, each once, sorted by name. A slice of another Service with the labels of ours is ignored."""
    found: dict[tuple[str, str], Endpoint] = {}
    for each in sorted(slices, key=lambda one: str(one["metadata"]["name"])):
        for endpoint in _ready_in(each):
            found.setdefault((endpoint.namespace, endpoint.pod), endpoint)
    return [found[name] for name in sorted(found)]


def _ready_in(piece: Object) -> Iterator[Endpoint]:
    metadata = piece["metadata"]
    labels = metadata.get("labels") or {}
    resource = str(labels.get(contract.LABEL_INSTANCE, ""))
    ports = [port["port"] for port in piece.get("ports") or () if port.get("name") == contract.DATA_PORT_NAME]
    if labels.get(_SERVICE) != f"{resource}{contract.HEADLESS_SUFFIX}" or len(ports) != 1:
        return
    for each in piece.get("endpoints") or ():
        target, addresses = each.get("targetRef") or {}, each.get("addresses") or ()
        ready = (each.get("conditions") or {}).get("ready") is not False  # absent means ready, as the API has it
        if ready and addresses and target.get("kind") == "Pod":
            host = f"[{addresses[0]}]" if piece.get("addressType") == "IPv6" else str(addresses[0])
            namespace, zone = str(metadata["namespace"]), str(each.get("zone") or "")
            yield Endpoint(namespace, resource, str(target["name"]), host, int(ports[0]), zone)
