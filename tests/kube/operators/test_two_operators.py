"""Two processes of `sluice operator` on a real API server: one leads, and the other one takes over. Both ask for a token."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from sluice import contract
from sluice_operator.cluster.kinds import path
from tests.kube.api_server import ApiServer
from tests.kube.operators.process import PATIENCE, Process, deployment, operator, wait_for
from tests.kube.specs import BASE, EDITED
from tests.kube.world import document

NAMESPACE = "two-operators"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/sluice-operator"
HANDOVER = 10.0  # seconds from the end of a leader, which releases its Lease, to the next one


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file with the log of both operators."""
    return tmp_path / "log"


@pytest.fixture
def operators(crd: ApiServer, log: Path) -> Iterator[list[Process]]:
    """Two operators of one release."""
    if crd.get(f"/api/v1/namespaces/{NAMESPACE}") is None:
        crd.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    asking = {"SLUICE_PROFILE": "true", "SLUICE_METRICS_AUTH": "token", "SLUICE_NAMESPACE": f"{NAMESPACE},default"}
    with ExitStack() as stack:
        both = (operator(crd, NAMESPACE, f"operator-{n}", log=log, environment=asking) for n in range(2))
        yield [stack.enter_context(each) for each in both]


def exists(server: ApiServer, where: str) -> bool:
    """True if there is an object at this path."""
    return server.get(where) is not None


def replicas(server: ApiServer) -> int:
    """The replicas of chat's Deployment; -1 without one."""
    found = deployment(server, NAMESPACE)
    return int(found["spec"]["replicas"]) if found else -1


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
    for kind, name in (("ConfigMap", "chat-targets"), ("Service", "chat")):  # by watches of two namespaces
        where = path(kind, NAMESPACE, name)
        crd.request("DELETE", where)
        wait_for(f"{kind} {name} is restored", partial(exists, crd, where))


def test_the_leader_makes_a_deleted_lease_anew_and_the_other_operator_never_acts_beside_it(
    crd: ApiServer, operators: list[Process], log: Path
) -> None:
    wait_for("an operator leads", lambda: any(each.leads() for each in operators))
    (leader,) = (each for each in operators if each.leads())
    # One that starts after the deletion cannot know of a holder.
    wait_for("the other knows the leader", lambda: "waits: operator-" in log.read_text())
    both: list[str] = []

    def holder() -> str:
        if all(each.leads() for each in operators):
            both.append("both lead")
        return str(((crd.get(LEASE) or {}).get("spec") or {}).get("holderIdentity") or "")

    for _ in range(3):
        mine = holder()
        crd.request("DELETE", LEASE)
        wait_for("there is a Lease again", lambda: holder() != "")
        wait_for("one leads", lambda: [each.leads() for each in operators].count(True) == 1)
        assert holder() == mine
    assert both == [] and leader.leads()
