"""Settings of the operator from environment variables, read once at start.

The chart sets them; no other module reads the environment. An invalid value ends the start with a sentence about it.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

_PEER_FIELDS: Final = {"podSelector", "namespaceSelector", "ipBlock"}  # of a NetworkPolicyPeer
_EGRESS_LISTS: Final = {"dns", "sources", "telemetry"}
_NETWORK_FIELDS: Final = {"admin", "data", "namespaceClients", "egress"}
# Fields that older charts do not set.
_NETWORK_DEFAULTS: Final[dict[str, Any]] = {"namespaceClients": "Always", "egress": {}}
_NAMESPACE_CLIENTS: Final = ("Always", "TLS", "Never")


class InvalidSettings(ValueError):
    """An environment variable has an invalid value. The message names the variable and the valid values."""


Peers = tuple[dict[str, Any], ...]  # of a NetworkPolicy


@dataclass(frozen=True, slots=True)
class EgressPeers:
    """What engine pods may connect to. Empty peers are everyone, except link-local addresses where that is no DNS server."""

    dns: Peers = ()
    sources: Peers = ()  # of models that engines download
    telemetry: Peers = ()  # OpenTelemetry collectors, of engines with the endpoint of one


@dataclass(frozen=True, slots=True)
class NetworkPeers:
    """Who may connect to engine pods, and to whom they may. The chart knows the namespaces and labels of the release."""

    admin: Peers  # operator, gateway, Prometheus; never empty, which would mean everyone
    data: Peers = ()  # gateway and further clients
    # Pods of an engine's own namespace: Always, TLS (with a certificate only) or Never.
    namespace_clients: str = "Always"
    egress: EgressPeers | None = EgressPeers()  # None: engines may connect to everyone


@dataclass(frozen=True, slots=True)
class PodMonitorSettings:
    """What the PodMonitors of engines have in common, where the cluster has that kind."""

    labels: tuple[tuple[str, str], ...] = ()  # by which a Prometheus selects its monitors
    interval_seconds: int = 15  # between two scrapes of one pod


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of this operator. Times are in seconds."""

    engine_image: str = "sluice/engine:dev"  # of pods whose accelerator has none of its own
    engine_images: tuple[tuple[str, str], ...] = ()  # by the accelerator's resource, such as nvidia.com/gpu
    max_upgrades: int = 1  # fleets that upgrade windows and a new key move at the same time
    pod_ids: str = "Fixed"  # user and group ids of engine pods: Fixed (65532), or Cluster (the cluster assigns them)
    namespaces: tuple[str, ...] = ()  # to watch; empty: all namespaces
    interval: float = 5.0  # between two passes over one resource without an event
    children_interval: float = 15.0  # between two applies of children that did not change
    # Attempts per second to make Secrets whose deletion no watch shows (reconcile/children/token_secrets.py), over all
    # resources, two requests each: with more than 9 such resources they are rarer.
    secret_attempts: float = 0.6
    monitor_interval: float = 7200.0  # between two applies of a PodMonitor where the operator may not list them
    status_interval: float = 30.0  # minimum time between two updates of the numbers in the status
    # Such updates per second over all resources, and saves of estimates: with more than 45 and 12 resources they are rarer.
    status_writes: float = 1.5
    estimate_writes: float = 0.4
    scrape_timeout: float = 2.0
    scrape_concurrency: int = 256  # concurrent calls to engines, bounded for memory; each ends by its timeout
    workers: int = 200  # concurrent passes, most of which wait for engines; shared connections have separate bounds
    acting_passes: int = 32  # of them decide and write: manifests take memory, and each is to end before its timeout
    error_backoff_cap: float = 15.0
    pod_namespace: str = "default"  # namespace of the Lease
    lease_name: str = "sluice-operator"  # one per release, so that two releases can share a namespace
    pod_name: str = "sluice-operator"  # holder identity in the Lease
    gateway_service: str = ""  # Service of the gateways in pod_namespace; empty: no gateway holds requests
    gateway_url: str = ""  # of that Service, for clients; empty: there is none
    key_secret: str = "sluice-operator-key"  # Secret in pod_namespace with the operator's key
    keyring_secret: str = "sluice-operator-keyring"  # Secret in pod_namespace with it and the keys before it
    health_port: int = 8080
    has_profiler: bool = False  # GET /debug/profile on health_port
    network_peers: NetworkPeers | None = None  # None: engines get no NetworkPolicy
    pod_monitor: PodMonitorSettings | None = None  # None: engines get no PodMonitor
    metrics_auth: str = "policy"  # who reads admin ports: whom NetworkPolicies admit, or of those who has a token
    read_secret: str = "sluice-operator-read"  # Secret in pod_namespace with the key and the release's token of reads
    accelerator_budget: str = ""  # of each namespace without an annotation of its own, in the same form; empty: none
    metrics_resources: int = 1000  # LLMDeployments with series of their own in the operator's metrics
    hub_endpoint: str = "https://huggingface.co"  # whose public models are checked before there are pods; empty: none

    def image_of(self, resource: str, count: int) -> str:
        """The engine image of pods with `count` accelerators of this resource, for a spec that names none."""
        return dict(self.engine_images).get(resource, self.engine_image) if count else self.engine_image


def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from `environment` (default: os.environ). Raises InvalidSettings."""
    env = os.environ if environment is None else environment
    default = Settings()
    return Settings(
        engine_image=env.get("SLUICE_ENGINE_IMAGE") or default.engine_image,
        engine_images=_images(env, "SLUICE_ENGINE_IMAGES"),
        max_upgrades=_count(env, "SLUICE_MAX_UPGRADES", default.max_upgrades, 1, 1000),
        pod_ids=_choice(env, "SLUICE_POD_IDS", ("Fixed", "Cluster")),
        namespaces=tuple(filter(None, env.get("SLUICE_NAMESPACE", "").split(","))),
        interval=_seconds(env, "SLUICE_INTERVAL_SECONDS", default.interval),
        pod_namespace=env.get("POD_NAMESPACE") or default.pod_namespace,
        lease_name=_object_name(env, "SLUICE_LEASE_NAME", default.lease_name),
        pod_name=env.get("POD_NAME") or env.get("HOSTNAME") or default.pod_name,
        gateway_service=env.get("SLUICE_GATEWAY_SERVICE", ""),
        gateway_url=_url(env, "SLUICE_GATEWAY_URL", default.gateway_url),
        key_secret=env.get("SLUICE_KEY_SECRET") or default.key_secret,
        keyring_secret=env.get("SLUICE_KEYRING_SECRET") or default.keyring_secret,
        metrics_auth=_choice(env, "SLUICE_METRICS_AUTH", ("policy", "token")),
        read_secret=env.get("SLUICE_READ_SECRET") or default.read_secret,
        hub_endpoint=_url(env, "SLUICE_HUB_ENDPOINT", default.hub_endpoint),
        network_peers=_network_peers(env, "SLUICE_NETWORK_PEERS"),
        pod_monitor=_pod_monitor(env, "SLUICE_POD_MONITOR"),
        accelerator_budget=env.get("SLUICE_ACCELERATOR_BUDGET", ""),
        metrics_resources=_count(env, "SLUICE_METRICS_RESOURCES", default.metrics_resources, 0, 100_000),
        health_port=_count(env, "SLUICE_HEALTH_PORT", default.health_port, 1, 65535, kind="port"),
    )


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.5 <= value <= 300:
        raise InvalidSettings(f"{name} is {text!r}: it must be a number of seconds from 0.5 to 300")
    return value


def _count(
    env: Mapping[str, str], name: str, default: int, least: int, most: int, *, kind: str = "whole number"
) -> int:
    text = env.get(name)
    if not text:
        return default
    if not text.isdecimal() or not least <= int(text) <= most:
        raise InvalidSettings(f"{name} is {text!r}: it must be a {kind} from {least} to {most}")
    return int(text)


def _choice(env: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    text = env.get(name) or values[0]
    if text not in values:
        raise InvalidSettings(f"{name} is {text!r}: it must be one of {', '.join(values)}")
    return text


def _url(env: Mapping[str, str], name: str, default: str) -> str:
    text = env.get(name, default)
    if text and not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", text):
        raise InvalidSettings(f"{name} is {text!r}: it must be a URL such as https://huggingface.co, or empty")
    return text


def _object_name(env: Mapping[str, str], name: str, default: str) -> str:
    text = env.get(name)
    if not text:
        return default
    if len(text) > 253 or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", text):
        raise InvalidSettings(f"{name} is {text!r}: it must be a name of a Kubernetes object, such as sluice-operator")
    return text


def _network_peers(env: Mapping[str, str], name: str) -> NetworkPeers | None:
    text = env.get(name)
    if not text:
        return None
    fields = _NETWORK_DEFAULTS | (_json_object(text) or {})
    egress = fields["egress"]
    is_known = set(fields) == _NETWORK_FIELDS and fields["namespaceClients"] in _NAMESPACE_CLIENTS
    is_known = is_known and (egress is None or (isinstance(egress, dict) and set(egress) <= _EGRESS_LISTS))
    lists = [fields["admin"], fields["data"], *(egress or {}).values()] if is_known else []
    if not is_known or not all(isinstance(peers, list) for peers in lists) or not fields["admin"]:
        raise InvalidSettings(
            f'{name} is {text!r}: it must be JSON such as {{"admin": [PEER], "data": [], "namespaceClients": "Always", '
            f'"egress": {{"dns": [], "sources": [], "telemetry": []}}}} with at least one admin peer'
        )
    for peer in chain.from_iterable(lists):
        if not isinstance(peer, dict) or not peer or set(peer) - _PEER_FIELDS:
            raise InvalidSettings(
                f"{name} has the peer {peer!r}: it must have podSelector, namespaceSelector or ipBlock"
            )
    return NetworkPeers(
        admin=tuple(fields["admin"]),
        data=tuple(fields["data"]),
        namespace_clients=fields["namespaceClients"],
        egress=None if egress is None else EgressPeers(**{each: tuple(peers) for each, peers in egress.items()}),
    )


def _images(env: Mapping[str, str], name: str) -> tuple[tuple[str, str], ...]:
    text = env.get(name) or "{}"
    images = _json_object(text)
    if images is None or not all(isinstance(each, str) and each for each in images.values()):
        raise InvalidSettings(
            f'{name} is {text!r}: it must be JSON such as {{"nvidia.com/gpu": "sluice/engine-cuda:dev"}}'
        )
    return tuple(sorted(images.items()))


def _pod_monitor(env: Mapping[str, str], name: str) -> PodMonitorSettings | None:
    text = env.get(name)
    if not text:
        return None
    fields = {"labels": None, "intervalSeconds": None} | (_json_object(text) or {})
    labels, seconds = fields["labels"], fields["intervalSeconds"]
    is_valid = len(fields) == 2 and isinstance(labels, dict) and all(isinstance(each, str) for each in labels.values())
    if not is_valid or not isinstance(seconds, int) or not 1 <= seconds <= 3600:
        raise InvalidSettings(
            f'{name} is {text!r}: it must be JSON such as {{"labels": {{"release": "prometheus"}}, "intervalSeconds": 15}}'
        )
    return PodMonitorSettings(labels=tuple(sorted(labels.items())), interval_seconds=seconds)


def _json_object(text: str) -> dict[str, Any] | None:
    """The JSON object in the text; None for any other text."""
    try:
        given = json.loads(text)
    except ValueError:
        return None
    return given if isinstance(given, dict) else None
