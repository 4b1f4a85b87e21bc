"""Two processes of `sluice operator` on a real API server: one leads, and the other one takes over."""

import os
import signal
import subprocess
import sys
import time
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
PATIENCE = 60.0  # seconds for a start or an action on a busy machine
HANDOVER = 10.0  # seconds from the end of a leader, which releases its Lease, to the next one


@dataclass(frozen=True)
class Process:
    """A running operator and the URL of its health port."""

    process: "subprocess.Popen[bytes]"
    url: str

    def metrics(self) -> dict[str, float]:
        """Its metrics; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as answer:
                return parse_metrics(answer.read().decode())
        except OSError:
            return {}

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
            }
            command = [sys.executable, "-m", "sluice", "operator"]
            process = stack.enter_context(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
            stack.callback(process.kill)
            found.append(Process(process, f"http://127.0.0.1:{port}"))
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
    assert not any("resource" in name for name in standby.metrics())

    with urllib.request.urlopen(f"{leader.url}/debug/profile?seconds=1", timeout=30) as answer:
        assert b"run_forever" in answer.read()

    leader.process.send_signal(signal.SIGTERM)
    assert leader.process.wait(PATIENCE) == 0
    wait_for("the other operator leads", standby.leads, HANDOVER)
    live = crd.request("GET", path(contract.KIND, NAMESPACE, "chat"))
    crd.request("PUT", path(contract.KIND, NAMESPACE, "chat"), live | {"spec": EDITED})
    wait_for("the other operator acts", lambda: replicas(crd) == 3)
    series = f'{contract.OPERATOR_RESOURCE_REPLICAS}{{name="chat",namespace="{NAMESPACE}",state="desired"}}'
    wait_for("the resource has its series", lambda: series in standby.metrics())
