"""Two processes of `sluice operator` on a real API server: one leads, and the other one takes over. Both ask for a token."""

import base64
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from e2e.framework.cluster import parse_metrics
from sluice import contract
from sluice_operator.cluster.kinds import path
from tests.kube.api_server import ApiServer, free_ports
from tests.kube.specs import BASE, EDITED
from tests.kube.world import document

NAMESPACE = "two-operators"
READ_SECRET = "two-read"
PATIENCE = 60.0  # seconds for a start or an action on a busy machine
HANDOVER = 10.0  # seconds from the end of a leader, which releases its Lease, to the next one


@dataclass(frozen=True)
class Process:
    """A running operator and the URL of its health port."""

    process: "subprocess.Popen[bytes]"
    url: str
    server: ApiServer

    def read(self, path: str, *, with_token: bool = True) -> tuple[int, str]:
        """The answer of its port; status 0 while it does not listen. The token is that of the release's Secret, if any."""
        secret = self.server.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{READ_SECRET}") if with_token else None
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


@pytest.fixture
def operators(crd: ApiServer) -> Iterator[list[Process]]:
    """Two operators of one release."""
    crd.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with ExitStack() as stack:
        found = []
        for number, port in enumerate(free_ports(2)):
            environment = {
                **os.environ,
                "KUBECONFIG": str(crd.kubeconfig),
                "PYTHONPATH": os.pathsep.join(sys.path),
                "POD_NAME": f"operator-{number}",
                "POD_NAMESPACE": NAMESPACE,
                "SLUICE_NAMESPACE": f"{NAMESPACE},default",
                "SLUICE_HEALTH_PORT": str(port),
                "SLUICE_HUB_ENDPOINT": "",
                "SLUICE_PROFILE": "true",
                "SLUICE_METRICS_AUTH": "token",
                "SLUICE_READ_SECRET": READ_SECRET,
            }
            command = [sys.executable, "-m", "sluice", "operator"]
            process = stack.enter_context(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
            stack.callback(process.kill)
            found.append(Process(process, f"http://127.0.0.1:{port}", crd))
        yield found


def wait_for(what: str, is_true: Callable[[], bool], seconds: float = PATIENCE) -> float:
    """Poll; returns the seconds it took. Raises TimeoutError."""
    began = time.monotonic()
    while not is_true():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)
    return time.monotonic() - began


def replicas(server: ApiServer) -> int:
    """The replicas of chat's Deployment; -1 without one."""
    found = server.get(path("Deployment", NAMESPACE, "chat"))
    return -1 if found is None else int(found["spec"]["replicas"])


def test_one_of_two_operators_leads_and_the_other_takes_over_where_it_ends(
    crd: ApiServer, operators: list[Process]
) -> None:
    wait_for("an operator leads", lambda: any(each.leads() for each in operators))
    (leader,) = (each for each in operators if each.leads())
    (standby,) = (each for each in operators if each is not leader)
    crd.request("POST", path(contract.KIND, NAMESPACE), document(BASE))
    wait_for("the children exist", lambda: replicas(crd) == 1)
    assert not standby.leads()
    wait_for("the standby knows the token", lambda: bool(standby.metrics()))
    assert not any("resource" in name for name in standby.metrics())
    for each in operators:
        assert each.read("/metrics", with_token=False)[0] == each.read("/debug/profile", with_token=False)[0] == 401
        assert each.read("/healthz", with_token=False)[0] in (200, 503)

    assert "runners.py:Runner.run" in leader.read("/debug/profile?seconds=1")[1]

    leader.process.send_signal(signal.SIGTERM)
    assert leader.process.wait(PATIENCE) == 0
    wait_for("the other operator leads", standby.leads, HANDOVER)
    crd.request("PATCH", path(contract.KIND, NAMESPACE, "chat"), {"spec": EDITED}, "application/merge-patch+json")
    wait_for("the other operator acts", lambda: replicas(crd) == 3)
    series = f'{contract.OPERATOR_RESOURCE_REPLICAS}{{name="chat",namespace="{NAMESPACE}",state="desired"}}'
    wait_for("the resource has its series", lambda: series in standby.metrics())
