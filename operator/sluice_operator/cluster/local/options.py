"""What a local cluster runs its pods with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sluice_operator.cluster.client import Object
from sluice_operator.cluster.local.kubelet import KubeletPeriods
from sluice_operator.cluster.local.launch import Launch, PodFiles, serve_launch
from sluice_operator.cluster.local.process import Ports

Command = Callable[[Object, Ports, PodFiles, str, int], Launch]


@dataclass(frozen=True, slots=True)
class LocalClusterOptions:
    """Options of `LocalCluster`."""

    state_dir: Path  # logs, tokens, termination messages; mode 0700; the caller removes it
    periods: KubeletPeriods = field(default_factory=KubeletPeriods)
    command: Command = serve_launch  # (container, ports, files, pod name, replicas) → start command
    replicas: int = 1  # the most that run at once and share this machine
    api_keys: Path | None = None  # key file of all engines; the kubelet would mount the Secret
    gateway_token: Path | None = None  # of the gateway that verifies these keys; likewise
