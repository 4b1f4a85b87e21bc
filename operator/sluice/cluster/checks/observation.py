"""Gathers what the checks judge. A part that cannot be read is kept as its error, so that the other checks still run."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeVar

from sluice import contract
from sluice.cluster.checks.permissions import Permission, needed
from sluice.cluster.reader import Object, Reader
from sluice_kube.api import collection
from sluice_kube.errors import ClusterError

T = TypeVar("T")

OPERATOR_APP: Final = "sluice-operator"  # values of app.kubernetes.io/name in the chart
GATEWAY_APP: Final = "sluice-gateway"
METRICS_PORT: Final = "metrics"  # name of the port in the operator's Service
CRD_PATH: Final = (
    f"{collection('apiextensions.k8s.io/v1', 'customresourcedefinitions')}/{contract.PLURAL}.{contract.GROUP}"
)


@dataclass(frozen=True, slots=True)
class Observation:
    """What was read, or the error of the read."""

    server: Object | ClusterError
    denied: tuple[Permission, ...] | ClusterError
    crd: Object | ClusterError | None
    nodes: list[Object] | ClusterError
    operators: list[Object] | ClusterError  # Deployments
    gateways: list[Object] | ClusterError  # Deployments
    gateway_services: list[Object] | ClusterError
    endpoint_slices: list[Object] | ClusterError  # of the namespaces of those
    metrics_services: list[Object] | ClusterError
    pods: list[Object] | ClusterError  # of operators, gateways and engines
    metrics: dict[str, str | ClusterError]  # namespace/name of a Service → the text of its /metrics

    @property
    def installed(self) -> bool:
        """True if an operator's Deployment was found."""
        return not isinstance(self.operators, ClusterError) and bool(self.operators)

    @property
    def lacks_release(self) -> bool:
        """True if it is known that there is no operator's Deployment."""
        return not isinstance(self.operators, ClusterError) and not self.operators


async def observe(reader: Reader, namespace: str = "") -> Observation:
    """Read everything. `namespace` is that of the release; empty: all. Raises ClusterError if no API server answers, or if it
    does not know the caller."""
    server = await _kept(reader.get("/version"))
    if isinstance(server, ClusterError) and server.status != HTTPStatus.FORBIDDEN:
        raise server
    labels = {app: f"{contract.LABEL_NAME}={app}" for app in (OPERATOR_APP, GATEWAY_APP)}
    deployments, services = collection("apps/v1", "deployments", namespace), collection("v1", "services", namespace)
    denied, crd = await asyncio.gather(_kept(_denied(reader, namespace)), _kept(reader.find(CRD_PATH)))
    nodes, operators, gateways, gateway_services, slices, metrics_services, pods = await asyncio.gather(
        _kept(reader.list(collection("v1", "nodes"))),
        _kept(reader.list(deployments, labels[OPERATOR_APP])),
        _kept(reader.list(deployments, labels[GATEWAY_APP])),
        _kept(reader.list(services, labels[GATEWAY_APP])),
        # The controller copies the labels of the Service to its EndpointSlices.
        _kept(reader.list(collection("discovery.k8s.io/v1", "endpointslices", namespace), labels[GATEWAY_APP])),
        _kept(reader.list(services, labels[OPERATOR_APP])),
        _kept(_pods(reader, namespace)),
    )
    found = [] if isinstance(metrics_services, ClusterError) else metrics_services
    known = [] if isinstance(operators, ClusterError) else operators
    texts = await asyncio.gather(*(_kept(_metrics(reader, each, known)) for each in found))
    return Observation(
        server=server,
        denied=denied,
        crd=crd,
        nodes=nodes,
        operators=operators,
        gateways=gateways,
        gateway_services=gateway_services,
        endpoint_slices=slices,
        metrics_services=metrics_services,
        pods=pods,
        metrics={qualified(each): text for each, text in zip(found, texts, strict=True)},
    )


def qualified(thing: Object) -> str:
    """namespace/name of an object."""
    return f"{thing['metadata'].get('namespace', '')}/{thing['metadata']['name']}"


async def _pods(reader: Reader, namespace: str) -> list[Object]:
    """The pods of operators and gateways in the namespace of the release, and engines in any."""
    found: list[Object] = []
    for app, where in ((OPERATOR_APP, namespace), (GATEWAY_APP, namespace), (contract.ENGINE_APP, "")):
        found += await reader.list(collection("v1", "pods", where), f"{contract.LABEL_NAME}={app}")
    return found


async def _metrics(reader: Reader, service: Object, operators: Sequence[Object]) -> str:
    """The text of an operator's /metrics, read with the token that its release asks for. Raises ClusterError."""
    namespace = service["metadata"]["namespace"]
    secrets = (_read_secret(each) for each in operators if each["metadata"]["namespace"] == namespace)
    secret = next(filter(None, secrets), "")
    token = await reader.secret(namespace, secret, contract.READ_TOKEN_KEY) if secret else ""
    return await reader.text(_metrics_path(service), read_token=token)


def _read_secret(operator: Object) -> str:
    """The name of the Secret whose token the reads of a release need; empty if they need none."""
    env = {
        each["name"]: str(each.get("value", ""))
        for container in operator["spec"]["template"]["spec"]["containers"]
        for each in container.get("env") or ()
    }
    return env.get("SLUICE_READ_SECRET", "") if env.get("SLUICE_METRICS_AUTH") == "token" else ""


def _metrics_path(service: Object) -> str:
    metadata = service["metadata"]
    where = collection("v1", "services", metadata["namespace"])
    return f"{where}/{metadata['name']}:{METRICS_PORT}/proxy{contract.PATH_METRICS}"


async def _denied(reader: Reader, namespace: str) -> tuple[Permission, ...]:
    wanted = needed()
    allowed = await asyncio.gather(*(reader.is_allowed(each.attributes(namespace)) for each in wanted))
    return tuple(each for each, may in zip(wanted, allowed, strict=True) if not may)


async def _kept(read: Awaitable[T]) -> T | ClusterError:
    try:
        return await read
    except ClusterError as error:
        return error
