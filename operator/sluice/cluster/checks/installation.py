"""The checks of an installed release: operator, images, gateway and metrics. Before an installation they warn."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sluice import __version__, contract
from sluice.cluster.checks.observation import Observation, qualified
from sluice.cluster.checks.result import Result, failure, ok, warning
from sluice_kube.errors import ClusterError

_NOT_INSTALLED: Final = "Sluice is not installed."
_INSTALL: Final = "Run `helm install sluice charts/sluice --namespace sluice-system --create-namespace`."
_ENGINE_IMAGE: Final = "SLUICE_ENGINE_IMAGE"  # environment of the operator's container
_ENGINE_IMAGES: Final = "SLUICE_ENGINE_IMAGES"  # JSON: accelerator → image of its pods
_NO_IMAGE: Final = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
_NETWORK_PEERS: Final = "SLUICE_NETWORK_PEERS"


def operator(seen: Observation) -> Result:
    """Each Deployment of an operator is available."""
    title = "Operator"
    if isinstance(seen.operators, ClusterError):
        return warning(title, str(seen.operators), _ask("list deployments.apps"))
    if not seen.operators:
        return warning(title, _NOT_INSTALLED, _INSTALL)
    for each in seen.operators:
        state = _condition(each, "Available")
        if state.get("status") != "True":
            name = each["metadata"]["name"]
            found = f"Deployment {qualified(each)} is not available ({state.get('message') or 'no condition yet'})."
            where = f"-n {each['metadata']['namespace']}"
            return failure(title, found, f"Read `kubectl describe deployment {name} {where}` and the pods' logs.")
    names = ", ".join(qualified(each) for each in seen.operators)
    return ok(title, f"Deployment {names} is available.")


def images(seen: Observation) -> Result:
    """Operator, gateway and engine have the version of this command."""
    title = "Versions"
    if isinstance(seen.operators, ClusterError):
        return warning(title, str(seen.operators), _ask("list deployments.apps"))
    if isinstance(seen.gateways, ClusterError):
        return warning(title, str(seen.gateways), _ask("list deployments.apps"))
    if not seen.operators:
        return warning(title, _NOT_INSTALLED, _INSTALL)
    other, unclear = [], []
    for image, release in _images([*seen.operators, *seen.gateways]):
        version = release if "@" in image else _tag(image)
        if version[:1].isdigit() and version != __version__:
            other.append(f"{image} ({version})" if "@" in image else image)
        elif version != __version__:
            unclear.append(image)
    if other:
        found = f"This command has version {__version__}, the cluster {', '.join(dict.fromkeys(other))}."
        return failure(title, found, "Upgrade the chart, or install the command of the cluster's version.")
    if unclear:
        found = f"{', '.join(dict.fromkeys(unclear))} has no version as its tag."
        return warning(title, found, f"Use the tag {__version__}, so that the versions can be compared.")
    return ok(title, f"Operator, gateway and engine images have version {__version__}.")


def pulls(seen: Observation) -> Result:
    """Every pod of operators, gateways and engines has its image."""
    title = "Images"
    if isinstance(seen.pods, ClusterError):
        return warning(title, str(seen.pods), "Ask for the right to list pods, those of engines in all namespaces.")
    if seen.lacks_release:
        return warning(title, _NOT_INSTALLED, _INSTALL)
    waiting = [
        (qualified(pod), state.get("image", ""), reason)
        for pod in seen.pods
        for state in (pod.get("status") or {}).get("containerStatuses") or ()
        if (reason := ((state.get("state") or {}).get("waiting") or {}).get("reason")) in _NO_IMAGE
    ]
    if waiting:
        name, image, reason = waiting[0]
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        found = f"Pod {name}{more}: {image} is not pulled ({reason})."
        remedy = "Correct image.* or engine.image.* of the chart or spec.engine.image, or add a pull secret for its registry."
        return failure(title, found, remedy)
    return ok(title, "No pod waits for its image.")


def gateway(seen: Observation) -> Result:
    """Each gateway's Service has a ready endpoint."""
    title = "Gateway"
    if isinstance(seen.gateway_services, ClusterError):
        return warning(title, str(seen.gateway_services), _ask("list services"))
    if isinstance(seen.endpoint_slices, ClusterError):
        return warning(title, str(seen.endpoint_slices), _ask("list endpointslices.discovery.k8s.io"))
    if seen.lacks_release:
        return warning(title, _NOT_INSTALLED, _INSTALL)
    if not seen.gateway_services:
        return warning(title, "No gateway is installed.", "Set gateway.enabled to true for routing and scale to zero.")
    ready = {qualified(each): 0 for each in seen.gateway_services}
    for part in seen.endpoint_slices:
        metadata = part["metadata"]
        service = f"{metadata['namespace']}/{(metadata.get('labels') or {}).get('kubernetes.io/service-name')}"
        if service in ready:
            ready[service] += sum(
                bool((one.get("conditions") or {}).get("ready")) for one in part.get("endpoints") or ()
            )
    for service, count in ready.items():
        if not count:
            namespace, _, name = service.partition("/")
            remedy = f"Read `kubectl describe deployment {name} -n {namespace}` and the pods' logs."
            return failure(title, f"Service {service} has no ready endpoint.", remedy)
    counted = (f"Service {name} has {count} ready endpoint{'s' * (count > 1)}" for name, count in ready.items())
    return ok(title, ", ".join(counted) + ".")


def metrics(seen: Observation) -> Result:
    """The operator's metrics are reachable through the API server's proxy of its Service."""
    title = "Metrics"
    if isinstance(seen.metrics_services, ClusterError):
        return warning(title, str(seen.metrics_services), _ask("list services"))
    if seen.lacks_release:
        return warning(title, _NOT_INSTALLED, _INSTALL)
    if not seen.metrics_services:
        return warning(title, "The operator has no metrics Service.", "Set metrics.service.enabled to true.")
    for service, text in seen.metrics.items():
        if isinstance(text, ClusterError) and text.status in (401, 403):
            rights = "services/proxy and, with metrics.auth token, the release's Secret of reads"
            return warning(title, str(text), f"Ask for the right to get {rights}, or query your Prometheus.")
        if isinstance(text, ClusterError) and _has_network_policy(seen):
            remedy = "Name the API server's addresses in networkPolicy.metricsFrom, or query your Prometheus."
            return warning(
                title, f"{text}. The operator's NetworkPolicy admits networkPolicy.metricsFrom only.", remedy
            )
        if isinstance(text, ClusterError):
            return failure(title, str(text), "Check the operator's pods and the NetworkPolicies of its namespace.")
        if contract.OPERATOR_LEADER not in text:
            found = f"Service {service} answers without {contract.OPERATOR_LEADER}."
            return failure(title, found, "Check that the Service selects the operator's pods only.")
    return ok(title, f"Service {', '.join(seen.metrics)} answers with the operator's metrics.")


def _ask(right: str) -> str:
    """The remedy for a read that RBAC refuses: a release may be in a namespace in which the caller has the right."""
    return f"Ask for the right to {right}, or name a namespace with -n in which you have it."


def _has_network_policy(seen: Observation) -> bool:
    """True if the release has NetworkPolicies: its operator is told the peers of the engines."""
    operators = [] if isinstance(seen.operators, ClusterError) else seen.operators
    return any(
        variable.get("name") == _NETWORK_PEERS and variable.get("value")
        for each in operators
        for container in each["spec"]["template"]["spec"]["containers"]
        for variable in container.get("env") or ()
    )


def _condition(deployment: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    listed = (deployment.get("status") or {}).get("conditions") or ()
    return next((each for each in listed if each.get("type") == kind), {})


def _images(deployments: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Image references, each with the version of the release that set it."""
    for each in deployments:
        release = str((each["metadata"].get("labels") or {}).get("app.kubernetes.io/version", ""))
        for container in each["spec"]["template"]["spec"]["containers"]:
            yield container["image"], release
            for variable in container.get("env") or ():
                value = variable.get("value") or ""
                if variable.get("name") == _ENGINE_IMAGE and value:
                    yield value, release
                elif variable.get("name") == _ENGINE_IMAGES:
                    yield from ((image, release) for image in _accelerator_images(value))


def _accelerator_images(text: str) -> tuple[str, ...]:
    """The images of a JSON object; none of a text that the operator refuses, which then is not available."""
    try:
        given = json.loads(text)
    except ValueError:
        return ()
    return tuple(filter(None, map(str, given.values()))) if isinstance(given, dict) else ()


def _tag(image: str) -> str:
    """The tag of an image reference; empty without one. A colon before a slash belongs to a port."""
    return image.rpartition("/")[2].partition(":")[2]
