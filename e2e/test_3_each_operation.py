"""Part 3, continued: thousands of requests during each operation on a fleet, and none of them fails.

Official clients send through the Service and through the gateway at once, and the operation is repeated until both loads
have ended. Takes ten minutes.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from e2e.framework import busy, jobs
from e2e.framework.busy import DRAIN_SECONDS, NAME, Fleet
from e2e.framework.cluster import Cluster, is_ready, name_of, run, say, wait_for
from e2e.framework.disruption import evict, wait_until_ended
from e2e.framework.operator_pod import REPLICAS, Operator
from e2e.framework.settings import Settings
from sluice import contract

REQUESTS = 1000  # of each of the two loads of an operation
MEANWHILE = 100  # requests of each load while the fleets move to a new key, which is done once
MOST = 3  # replicas
STREAMS = 50
LATE_EXIT = 2.0  # seconds that an engine may need beyond its drain budget


@pytest.fixture(scope="module")
def fleet(cluster: Cluster, operator: Operator, settings: Settings) -> Iterator[Fleet]:
    """Two replicas."""
    with busy.fleet(cluster, operator, settings, replicas=2) as fleet:
        yield fleet


def rolling_update(fleet: Fleet) -> None:
    """A changed argument replaces both pods."""
    old, spec = fleet.names(), (fleet.cluster.resource(NAME) or {})["spec"]
    tokens = 256 if spec["engine"]["scheduling"]["maxBatchedTokens"] == 512 else 512
    fleet.change(engine={"scheduling": {"maxBatchedTokens": tokens}})
    fleet.settle(2, without=old)


def drain(fleet: Fleet) -> None:
    """All pods are evicted as `kubectl drain` does: an eviction that the budget refuses is repeated until it may be."""
    old = fleet.serving()
    for pod in old:
        evict(fleet.cluster, pod)
    fleet.settle(2, without={name_of(pod) for pod in old})


def operator_restart(fleet: Fleet) -> None:
    """All operators are deleted at once."""
    operator = fleet.operator
    names = [name_of(pod) for pod in operator.pods()]
    run("kubectl", "-n", operator.namespace, "delete", "pod", *names, "--wait=false")
    wait_for("another operator leads", lambda: operator.leader() not in ("", *names), timeout=60)
    operator.wait_for_passes(4)
    wait_for("as many as before", lambda: sum(map(is_ready, operator.pods())) == REPLICAS, timeout=60)


def scale_down(fleet: Fleet) -> None:
    """From three replicas to one."""
    fleet.scale(MOST)
    fleet.scale(1)


@pytest.mark.parametrize("operation", [rolling_update, drain, operator_restart, scale_down])
def test_none_of_thousands_of_requests_fails_during(fleet: Fleet, operation: Callable[[Fleet], None]) -> None:
    began, times = time.monotonic(), 0
    loads = fleet.start(operation.__name__.replace("_", "-"), REQUESTS)
    while any(load.is_running() for load in loads):
        operation(fleet)
        times += 1
    assert times >= 1
    busy.check(loads, f"{operation.__name__}, {times} times", began, least=REQUESTS)


def test_no_request_fails_while_a_new_key_of_the_operator_moves_the_fleets(fleet: Fleet) -> None:
    """The key is replaced as its owner does it: its Secret is deleted, and the operators start again."""
    fleet.scale(2)
    cluster, old = fleet.cluster, {name: secrets_of(fleet.cluster, name) for name in (NAME, "chat")}
    loads, began = fleet.start("new-key"), time.monotonic()
    run("kubectl", "-n", fleet.operator.namespace, "delete", "secret", f"{fleet.operator.release}-key")
    operator_restart(fleet)

    def have_moved() -> bool:
        return all(secrets_of(cluster, name).isdisjoint(before) for name, before in old.items())

    wait_for("all pods have tokens of the new key", have_moved, timeout=500)
    fleet.settle(2)
    wait_for("the engines take limits by their new token", lambda: has_limits(cluster), timeout=60)
    busy.check(loads, "a new key of the operator", began, least=MEANWHILE)


def secrets_of(cluster: Cluster, name: str) -> set[str]:
    """The admin Secrets that the pods of a fleet mount."""
    volumes = [volume for pod in cluster.pods(name) for volume in pod["spec"]["volumes"]]
    return {volume["secret"]["secretName"] for volume in volumes if volume["name"] == contract.ADMIN_VOLUME}


def has_limits(cluster: Cluster) -> bool:
    """True if limits of the operator are in force in all of chat's pods that serve."""
    pods = [pod for pod in cluster.pods("chat") if is_ready(pod)]
    return bool(pods) and all(cluster.limits(name_of(pod)).get("ttl_seconds") is not None for pod in pods)


def test_a_pod_deleted_under_50_streams_ends_all_of_them_within_its_budget(fleet: Fleet, settings: Settings) -> None:
    fleet.scale(2)
    [pod, _] = fleet.serving()
    options = ("--long", "--each", str(STREAMS), "--apart", "0.2", "--pin", f"http://{pod['status']['podIP']}:8000")
    streams = jobs.start_client(fleet.cluster, "fifty", settings.image("engine"), NAME, *options)

    def running() -> float:
        return fleet.value(pod, contract.REQUESTS_RUNNING)

    wait_for(f"{STREAMS} streams", lambda: running() >= STREAMS, timeout=120, every=0.3)
    deleted = time.monotonic()
    fleet.cluster.kubectl("delete", "pod", name_of(pod), "--wait=false")
    wait_until_ended(fleet.cluster, pod, NAME)
    took = time.monotonic() - deleted
    account = streams.finish(timeout=300)
    say(f"a pod with {STREAMS} streams was gone {took:.0f} s after its deletion")
    assert account["failed"] == []
    assert account["streams_pinned"] >= STREAMS
    assert took <= contract.DRAIN_GRACE_SECONDS + DRAIN_SECONDS + LATE_EXIT
