"""The operator's key is replaced under running fleets, on a real API server by real operators."""

import base64
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pytest

from sluice import contract
from sluice_operator.cluster.kinds import path
from sluice_operator.reconcile.children.admin_token import KEYRING
from sluice_operator.revisions.record import read_record
from sluice_operator.revisions.values import secret_of
from tests.kube.api_server import ApiServer
from tests.kube.operators.process import READ_SECRET, condition, deployment, operator, roll, wait_for
from tests.kube.specs import BASE
from tests.kube.world import document

pytestmark = pytest.mark.timeout(400)  # two starts of an operator and five rollouts on a busy machine
NAMESPACE = "new-key"
FLEETS = tuple(f"chat-{number}" for number in range(4))
KEY, RING = ("Secret", NAMESPACE, "sluice-operator-key"), ("Secret", NAMESPACE, "sluice-operator-keyring")
SPEC = BASE | {"scaling": {"minReplicas": 1, "maxReplicas": 1}}
FAST = {"SLUICE_INTERVAL_SECONDS": "1", "SLUICE_MAX_UPGRADES": "1"}


def mounted(server: ApiServer) -> dict[str, str]:
    """The admin Secret that each fleet's pods are to mount."""
    return {name: secret_of(deployment(server, NAMESPACE, name)["spec"]["template"]) for name in FLEETS}


def lines(server: ApiServer, secret: str, entry: str) -> list[str]:
    """The lines of a Secret's entry."""
    found = server.get(path("Secret", NAMESPACE, secret)) or {}
    return base64.b64decode((found.get("data") or {}).get(entry, "")).decode().split()


def follow(server: ApiServer, before: Mapping[str, str] | None = None, done: Collection[str] = ()) -> bool:
    """The Deployment controller has rolled all fleets but those whose Secret differs from the one `before` and that are
    not `done`; returns True."""
    for name in FLEETS:
        live = deployment(server, NAMESPACE, name)
        moves = before is not None and name not in done and secret_of(live["spec"]["template"]) != before[name]
        if not moves and (live.get("status") or {}).get("observedGeneration") != live["metadata"]["generation"]:
            roll(server, NAMESPACE, live)
    return True


def serves(server: ApiServer, name: str) -> bool:
    """True once the operator has seen all pods of the fleet ready."""
    record = read_record(deployment(server, NAMESPACE, name))
    return record is not None and record.applied.ready and not record.moves


def waits(server: ApiServer, waiting: Iterable[str]) -> bool:
    """True once each of these fleets has been told that it waits."""
    told = (condition(server, NAMESPACE, "UpgradeAvailable", name).get("reason") for name in waiting)
    return all(reason == "NewOperatorKey" for reason in told)


def test_a_new_key_moves_one_fleet_after_the_other_also_over_a_killed_operator(crd: ApiServer, tmp_path: Path) -> None:
    crd.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with operator(crd, NAMESPACE, "first", log=tmp_path / "first", restarts=True, environment=FAST):
        for name in FLEETS:
            crd.request("POST", path(contract.KIND, NAMESPACE), document(SPEC, name))
        wait_for("there are Deployments", lambda: all(deployment(crd, NAMESPACE, name) for name in FLEETS))
        wait_for("all fleets serve", lambda: follow(crd) and all(serves(crd, name) for name in FLEETS))
    before, done = mounted(crd), set[str]()
    crd.request("DELETE", path(*KEY))

    def moved() -> set[str]:
        return {name for name, secret in mounted(crd).items() if secret != before[name]}

    with operator(crd, NAMESPACE, "second", log=tmp_path / "second", restarts=True, environment=FAST):
        wait_for("a fleet moves", lambda: follow(crd, before) and bool(moved()))
        wait_for("the others wait", lambda: follow(crd, before) and waits(crd, set(FLEETS) - moved()))
        assert len(moved()) == 1
        assert len(lines(crd, RING[2], KEYRING)) == len(lines(crd, READ_SECRET, contract.READ_KEY)) == 2
    with operator(crd, NAMESPACE, "second", log=tmp_path / "third", restarts=True, environment=FAST):  # it was killed
        for count in range(1, len(FLEETS)):
            wait_for("the others wait", lambda: follow(crd, before, done) and waits(crd, set(FLEETS) - moved()))
            assert len(moved()) == count
            done.update(moved())
            wait_for("the next fleet moves", lambda: follow(crd, before, done) and len(moved()) > len(done))
        wait_for("all fleets serve", lambda: follow(crd) and all(serves(crd, name) for name in FLEETS))
        assert moved() == set(FLEETS)
        for name, secret in mounted(crd).items():
            assert crd.get(path("Secret", NAMESPACE, secret)) is not None, name
