"""Requests to an API server over `kubernetes.aio`. Objects are plain JSON; every request has a deadline."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml
from kubernetes.aio import client as aio_client
from kubernetes.aio import config as aio_config
from kubernetes.aio.client import ApiClient, ApiException, Configuration
from kubernetes.aio.dynamic import DynamicClient

from sluice_kube.errors import ClusterError

# These libraries have no types.
config: Any = aio_config
dynamic_client: Any = DynamicClient
transport: Any = aio_client.rest

REQUEST_SECONDS: Final = 10.0
MAX_TEXT_BYTES: Final = 8 * 1024 * 1024  # of one log or one answer of a pod
_CONNECTIONS: Final = 16
_MOST_DIGITS: Final = 9
# What the library raises for a kubeconfig that cannot be read, is no YAML, or lacks what it indexes without a check.
_SAID: Final = (config.ConfigException, OSError, yaml.YAMLError, ValueError)  # their messages name the fault
_UNUSABLE: Final = (*_SAID, TypeError, AttributeError, LookupError)
_POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


async def connect() -> ApiClient:
    """Return a client for the cluster of this pod, or outside a pod for that of KUBECONFIG. Raises ClusterError."""
    settings = Configuration()
    try:
        config.load_incluster_config(client_configuration=settings)
    except config.ConfigException:
        try:
            await config.load_kube_config(client_configuration=settings)
        except _UNUSABLE as error:
            cause = " ".join(str(error).split()) if isinstance(error, _SAID) else "it has no cluster, context or user"
            raise ClusterError(
                f"no cluster to talk to: not inside a pod, and no usable kubeconfig ({cause}). Set KUBECONFIG."
            ) from error
    settings.connection_pool_maxsize = _CONNECTIONS
    return ApiClient(configuration=settings)


def context_namespace() -> str:
    """Return the namespace that kubectl uses without -n: of this pod, or of KUBECONFIG's current context, or `default`."""
    try:
        return _POD_NAMESPACE.read_text("utf-8").strip()
    except OSError:
        pass
    try:
        _, current = config.list_kube_config_contexts()
        return str(current["context"].get("namespace") or "default")
    except _UNUSABLE:
        return "default"  # the connection fails next, with a sentence


def collection(group_version: str, plural: str, namespace: str = "") -> str:
    """Return the API path of a kind in one namespace; an empty namespace means all."""
    prefix = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    return f"{prefix}/namespaces/{namespace}/{plural}" if namespace else f"{prefix}/{plural}"


async def request(
    dynamic: Any, method: str, where: str, seconds: float = REQUEST_SECONDS, **parameters: Any
) -> dict[str, Any]:
    """Send one request with a timeout; return the JSON response. Raises ClusterError with the server's message."""
    async with _failures_of(f"{method.upper()} {where}", seconds):
        response = await dynamic.request(method, where, serialize=False, **parameters)
        answer: dict[str, Any] = await response.json()
        return answer


async def request_text(
    dynamic: Any,
    where: str,
    query: Mapping[str, str],
    headers: Mapping[str, str] = MappingProxyType({}),
    seconds: float = REQUEST_SECONDS,
    most: int = MAX_TEXT_BYTES,
) -> str:
    """Read a body that is text, such as a log, and at most its first `most` bytes. Raises ClusterError."""
    async with _failures_of(f"GET {where}", seconds):
        response = await dynamic.request(
            "get", where, serialize=False, query_params=list(query.items()), header_params=dict(headers)
        )
        try:
            found = bytearray()
            async for chunk in response.content.iter_any():
                found += chunk
                if len(found) >= most:
                    break
        finally:
            response.close()
        return found[:most].decode(errors="replace")


@asynccontextmanager
async def _failures_of(what: str, seconds: float) -> AsyncIterator[None]:
    """Bound the request `what` in time, and raise its errors as ClusterError."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise ClusterError(f"{what}: no answer within {seconds:.0f} s") from error
    # The transport raises errors of its HTTP library. Naming them through the transport avoids an import of it.
    except (ApiException, transport.aiohttp.ClientError, OSError, ValueError) as error:
        raise cluster_error(what, error) from error


def cluster_error(what: str, error: Exception) -> ClusterError:
    """Return the error of the request `what` as a ClusterError, with the server's message where there is one."""
    if isinstance(error, ApiException):
        sentence = f"{what}: {error.status} {_server_message(error)}"
        return ClusterError(sentence, status=int(error.status or 0), retry_after=_retry_after(error))
    return ClusterError(f"{what}: {error or type(error).__name__}")


def _retry_after(error: ApiException) -> float:
    """The seconds of the header; 0 without one, and for a date."""
    text = str((error.headers or {}).get("Retry-After", ""))
    return float(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else 0.0


def _server_message(error: ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, TypeError, KeyError):
        return str(error.reason)
