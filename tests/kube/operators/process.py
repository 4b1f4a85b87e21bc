"""Processes of `sluice operator` on a real API server, and what the Deployment controller would write beside them."""

import base64
import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from e2e.framework.cluster import parse_metrics
from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.kinds import path
from tests.kube.api_server import ApiServer, free_ports

READ_SECRET: Final = "two-read"
PATIENCE: Final = 180.0  # seconds for a start or an action on a busy machine


@dataclass(frozen=True)
class Process:
    """A running operator and the URL of its health port."""

    process: "subprocess.Popen[bytes]"
    url: str
    server: ApiServer
    namespace: str

    def read(self, path: str, *, with_token: bool = True) -> tuple[int, str]:
        """The answer of its port; status 0 while it does not listen. The token is that of the release's Secret, if any."""
        where = f"/api/v1/namespaces/{self.namespace}/secrets/{READ_SECRET}"
        secret = self.server.get(where) if with_token else None
        token = base64.b64decode(secret["data"][contract.READ_TOKEN_KEY]).decode() if secret else ""
        request = urllib.request.Request(f"{self.url}{path}", headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    def metrics(self) -> dict[str, float]:
        """Its metrics; empty while it does not answer."""
        status, text = self.read("/metrics")
        return parse_metrics(text) if status == 200 else {}

    def leads(self) -> bool:
        """True while it holds the Lease."""
        return self.metrics().get(contract.OPERATOR_LEADER) == 1.0


@contextmanager
def operator(
    server: ApiServer,
    namespace: str,
    name: str = "operator-0",
    *,
    kubeconfig: Path | None = None,
    log: Path | None = None,
    restarts: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Process]:
    """An operator of the release in this namespace, killed at the end of the block. Its log goes to a file, or nowhere.

    restarts: it is started again after each failure, as by the kubelet; then the process is the shell that does so.
    """
    (port,) = free_ports(1)
    variables = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig or server.kubeconfig),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "POD_NAME": name,
        "POD_NAMESPACE": namespace,
        "SLUICE_NAMESPACE": namespace,
        "SLUICE_HEALTH_PORT": str(port),
        "SLUICE_HUB_ENDPOINT": "",
        "SLUICE_READ_SECRET": READ_SECRET,
        **environment,
    }
    with (log or Path(os.devnull)).open("ab") as output:
        again = ["sh", "-c", 'until "$@"; do sleep 1; done', "sh"] if restarts else []
        command = [*again, sys.executable, "-m", "sluice", "operator"]
        with subprocess.Popen(command, env=variables, stderr=output, start_new_session=True) as process:
            try:
                yield Process(process, f"http://127.0.0.1:{port}", server, namespace)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def wait_for(what: str, is_true: Callable[[], bool], seconds: float = PATIENCE) -> float:
    """Poll; returns the seconds it took. Raises TimeoutError."""
    began = time.monotonic()
    while not is_true():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.3)
    return time.monotonic() - began


def deployment(server: ApiServer, namespace: str, name: str = "chat") -> Object:
    """The Deployment as stored; empty without one."""
    return server.get(path("Deployment", namespace, name)) or {}


def roll(server: ApiServer, namespace: str, live: Object) -> None:
    """The Deployment controller has made all pods from this Deployment's template, and they are ready."""
    count = live["spec"]["replicas"]
    counts = {"replicas": count, "updatedReplicas": count, "readyReplicas": count}
    status = counts | {"observedGeneration": live["metadata"]["generation"]}
    body = {"status": status}
    server.request(
        "PATCH",
        path("Deployment", namespace, live["metadata"]["name"]) + "/status",
        body,
        "application/merge-patch+json",
    )


def condition(server: ApiServer, namespace: str, kind: str, name: str = "chat") -> Object:
    """A condition of an LLMDeployment; empty before it is there."""
    found = server.get(path(contract.KIND, namespace, name)) or {}
    conditions = (found.get("status") or {}).get("conditions") or ()
    return next((dict(each) for each in conditions if each["type"] == kind), {})
