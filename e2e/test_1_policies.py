"""Part 1, continued: who reaches which port by the NetworkPolicies of the release and of `chat`, in both directions."""

from collections.abc import Iterator

import pytest

from e2e.framework import manifests, network
from e2e.framework.cluster import RESTRICTED, Cluster, Object, is_ready, run, wait_for
from e2e.framework.operator_pod import Operator
from e2e.framework.settings import Settings
from sluice import contract

SERVED = 8080  # the operator's only port, and the gateway's for clients
# source, destination, port: open or closed
WAYS = (
    ("operator", "engine", contract.ADMIN_PORT, True),
    ("operator", "gateway", contract.GATEWAY_ADMIN_PORT, True),
    ("gateway", "engine", contract.DATA_PORT, True),
    ("gateway", "engine", contract.ADMIN_PORT, True),
    ("neighbour", "engine", contract.DATA_PORT, True),
    ("neighbour", "engine", contract.ADMIN_PORT, False),
    ("neighbour", "gateway", SERVED, True),
    ("neighbour", "operator", SERVED, False),
    ("stranger", "engine", contract.DATA_PORT, False),
    ("stranger", "engine", contract.ADMIN_PORT, False),
    ("stranger", "gateway", SERVED, True),
    ("stranger", "gateway", contract.GATEWAY_ADMIN_PORT, False),
    ("stranger", "operator", SERVED, False),
    # The probed pod listens at this port; the model is on a volume.
    ("engine", "probed", contract.ADMIN_PORT, False),
    ("gateway", "probed", contract.ADMIN_PORT, False),
    ("operator", "probed", contract.ADMIN_PORT, False),
    ("engine", "gateway", SERVED, False),
    ("operator", "engine", contract.DATA_PORT, False),
)


@pytest.fixture(scope="module")
def pods(cluster: Cluster, operator: Operator, settings: Settings) -> Iterator[dict[str, Object]]:
    """A pod for each end of the ways; the stranger is in a namespace of its own."""
    elsewhere, image = Cluster(f"{settings.namespace}-elsewhere", cluster.api), settings.image("engine")
    run("kubectl", "create", "namespace", elsewhere.namespace)
    run("kubectl", "label", "namespace", elsewhere.namespace, f"{RESTRICTED}=restricted")
    probed = manifests.program_pod("probed", image, "foreign.py", "serve")
    probed["metadata"]["labels"] = {"probe": "yes"}
    cluster.apply(manifests.idle_pod("neighbour", image), probed)
    elsewhere.apply(manifests.idle_pod("stranger", image))
    own = {"neighbour": cluster, "probed": cluster, "stranger": elsewhere}

    def found() -> dict[str, Object]:
        return {
            name: where.get(f"/api/v1/namespaces/{where.namespace}/pods/{name}") or {} for name, where in own.items()
        }

    wait_for("the pods run", lambda: all(map(is_ready, found().values())), timeout=120)
    chat = next(pod for pod in cluster.pods("chat") if is_ready(pod))
    yield found() | {"engine": chat, "operator": operator.pods()[0], "gateway": operator.gateways()[0]}
    cluster.kubectl("delete", "pod", "neighbour", "probed", "--wait=false")
    run("kubectl", "delete", "namespace", elsewhere.namespace, "--wait=false")


@pytest.fixture(scope="module")
def enforced(cluster: Cluster, pods: dict[str, Object]) -> bool:
    """Whether the cluster's network plugin acts on NetworkPolicies."""
    found = network.is_enforced(cluster, pods["neighbour"], pods["probed"], contract.ADMIN_PORT)
    network.told(found)
    return found


@pytest.mark.parametrize(("source", "destination", "port", "is_open"), WAYS)
def test_a_port_is_open_to_its_peers_and_closed_to_others(
    cluster: Cluster, pods: dict[str, Object], enforced: bool, source: str, destination: str, port: int, is_open: bool
) -> None:
    way = (pods[source], pods[destination], port)
    assert network.admits(cluster, *way) is is_open
    assert network.connects(*way) or not is_open
    assert not network.connects(*way) or is_open or not enforced
