"""Part 3, continued: thousands of requests while the API server is saturated or away and an engine is full; none fails.

The API server is away for AWAY seconds (600), in which the load of another engine exceeds what it can serve. Before that, the
operators' watches fall silent or lose their version, and the node is lost. Meanwhile a third engine has clients of every
kind, and is as large at the end as before. Takes a third of an hour.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from e2e.framework import busy, flood, jobs, manifests, reach, wire
from e2e.framework.busy import NAME, Fleet
from e2e.framework.cluster import CUSTOM, Cluster, Object, is_ready, name_of, run, say, wait_for
from e2e.framework.disruption import free_nodes
from e2e.framework.operator_pod import CRD, Operator, most_memory
from e2e.framework.settings import Settings
from sluice import contract
from sluice_operator.render.names import CONTAINER
from tests.acceptance import LASTED
from tests.soak.churn import EXPECTED
from tests.soak.flatness import faults, summary

FULL = "full"  # the engine whose load exceeds what it can serve
CROWD = 80  # its streams; it runs at most 64 at once
REQUESTS = 1000  # of each of the two loads
SHORT = 150.0  # seconds of an outage below which fewer requests suffice
SURGE = 2  # rollout.maxSurge, which is changed after the outage
RESTORED = 30.0  # seconds within which the operator acts after the outage
SATURATED = 4.0  # times the duration of a list without others at the same time
AFTER = 60.0  # seconds that the loads go on: the node is marked as not ready meanwhile, and so are its pods
STALL = 75.0  # seconds until silent watches are noticed
START = 30.0  # seconds for another process to lead and act
HIDDEN = "hidden"  # the resource whose change no watch tells of
GONE = f"Restarting the watch-stream for {contract.PLURAL}"  # Kopf's words for a 410
LOST = "lost"  # the resource whose node falls silent
MOST = 2  # its replicas
TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
GIVEN_UP = 180.0  # seconds until Kubernetes gives up the pods of a silent node: it notices that after 40
SOAKED = "soaked"  # the engine whose size is measured
SOAK_WORKERS = 4  # of its clients, which leave the other engines most of two cores
SOAK_SHORT = 180.0  # seconds of the soak where there is no outage
SOAK_ANSWERS = 1.0  # per second at least
RESOURCES = 60  # more than there are
GROWTH = 1.5  # times the operator's peak memory before the outage


def test_row_a_change_that_silent_watches_hide_is_made_in_time_or_the_operator_starts_again(
    cluster: Cluster, operator: Operator, settings: Settings
) -> None:
    cluster.apply(manifests.llm_deployment(HIDDEN, scaling={"mode": "External"}, replicas=0))
    wait_for("a Deployment without a pod", lambda: cluster.deployment(HIDDEN), timeout=60)
    try:
        with wire.before(cluster, operator, settings.image("engine")):
            wire.stall(cluster)
            cluster.patch("llmd", HIDDEN, {"spec": {"engine": {"template": {"nodeSelector": {"disk": "fast"}}}}})
            wait_for("the change is made", lambda: placed(cluster) == {"disk": "fast"}, timeout=STALL + START)
            say(f"restarts of the operators: {operator.restarts()}")
    finally:
        cluster.kubectl("delete", "llmd", HIDDEN, "--timeout=100s")


def test_row_a_change_is_made_although_the_api_server_no_longer_has_the_version_of_the_watches(
    cluster: Cluster, operator: Operator, settings: Settings
) -> None:
    """The API server forgets the versions of a kind when its CRD changes. The watches end before they show the change."""
    cluster.apply(manifests.llm_deployment(HIDDEN, scaling={"mode": "External"}, replicas=0))
    wait_for("a Deployment without a pod", lambda: cluster.deployment(HIDDEN), timeout=60)
    try:
        with wire.before(cluster, operator, settings.image("engine")):
            wire.stall(cluster)
            version = (cluster.resource(HIDDEN) or {})["metadata"]["resourceVersion"]
            cluster.patch("llmd", HIDDEN, {"spec": {"engine": {"template": {"nodeSelector": {"disk": "large"}}}}})
            with described(cluster):
                wait_for("the version is gone", lambda: '"code":410' in watched_from(cluster, version), timeout=60)
                assert GONE not in operator.logs()
                assert placed(cluster) == {}
                wire.cut(cluster)
                began = time.monotonic()
                wait_for("the operator is refused the version", lambda: GONE in operator.logs(), timeout=STALL)
                left = STALL - (time.monotonic() - began)
                wait_for("the change is made", lambda: placed(cluster) == {"disk": "large"}, timeout=left, every=0.2)
            assert operator.restarts() == 0
    finally:
        cluster.kubectl("delete", "llmd", HIDDEN, "--timeout=100s")


def test_row_a_lost_node_is_replaced_and_its_return_leads_to_no_more_than_the_maximum(
    cluster: Cluster, operator: Operator, settings: Settings
) -> None:
    """The kubelet of the only node stops, so the replacements wait for its return; other pods tolerate it for longer."""
    if not settings.outage:
        pytest.skip("OUTAGE names no command that stops and starts this cluster's kubelet")
    if others := free_nodes(cluster, but=operator.pods()[0]["spec"]["nodeName"]):
        pytest.skip(f"the replacements would find a node: {', '.join(others)}")
    leaving = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1} for key in TAINTS]
    engine = manifests.engine()
    engine["template"] = engine["template"] | {"tolerations": leaving}
    cluster.apply(manifests.llm_deployment(LOST, engine=engine, scaling={"minReplicas": MOST, "maxReplicas": MOST}))
    wait_for("2 pods serve", lambda: sum(map(is_ready, cluster.pods(LOST))) == MOST, timeout=240)
    gone = staying(cluster)
    run(*settings.outage, "stop", "kubelet")
    try:
        wait_for("Kubernetes replaces both pods", lambda: len(staying(cluster) - gone) == MOST, GIVEN_UP)
        wait_for("the status says so", lambda: cluster.condition(LOST, "Available")["status"] == "False", RESTORED)
        say(f"Available: {cluster.condition(LOST, 'Available')}")
    finally:
        run(*settings.outage, "start", "kubelet")
    counts: list[int] = []

    def is_restored() -> bool:
        counts.append(len(staying(cluster)))
        pods = cluster.pods(LOST)
        return len(pods) == MOST and all(map(is_ready, pods)) and gone.isdisjoint(map(name_of, pods))

    # Kubernetes deletes some replacements again while they start. Their grace period is longer than this.
    wait_for("the replacements serve and no other pod is left", is_restored, timeout=100, every=0.5)
    wait_for("the release is ready", lambda: all(map(is_ready, [*operator.pods(), *operator.gateways()])), timeout=120)
    wait_for("the resource is ready", lambda: cluster.condition(LOST, "Ready")["status"] == "True", RESTORED)
    assert max(counts) == MOST
    assert (cluster.deployment(LOST) or {})["spec"]["replicas"] == MOST
    cluster.kubectl("delete", "llmd", LOST, "--timeout=200s", timeout=220)


@pytest.fixture(scope="module")
def fleet(cluster: Cluster, operator: Operator, settings: Settings) -> Iterator[Fleet]:
    """Two replicas."""
    with busy.fleet(cluster, operator, settings, replicas=2) as fleet:
        yield fleet


def test_none_of_thousands_of_requests_fails_while_lists_saturate_the_api_server(
    fleet: Fleet, settings: Settings
) -> None:
    with flood.of_lists(fleet.cluster, settings.image("engine")) as lists:
        began = time.monotonic()
        loads = fleet.start("saturated", REQUESTS)
        fleet.cluster.kubectl("delete", "service", f"{NAME}-engines")
        wait_for("the loads end", lambda: not any(load.is_running() for load in loads), timeout=900)
        account = lists.finish(timeout=120)
        say(f"lists: {account}")
    wait_for("the deleted child is restored", lambda: engines_service(fleet.cluster), timeout=RESTORED)
    say(f"restarts of the operators: {fleet.operator.restarts()}")
    busy.check(loads, "API server saturated", began, least=REQUESTS)
    assert account["median_seconds"] >= SATURATED * account["alone_seconds"]


@pytest.fixture(scope="module")
def soak(cluster: Cluster, operator: Operator, settings: Settings) -> Iterator[str]:
    """The pod of an engine with churn. The program in it has begun and ends by itself, at about the end of the outage."""
    model = {"uri": "pvc://models/tiny", "servedName": "tiny", "dtype": "float32"}  # the name that the churn asks for
    engine = manifests.engine()
    engine["template"] = engine["template"] | {"volumes": [manifests.soak_volume()]}
    cluster.apply(
        manifests.llm_deployment(SOAKED, model=model, engine=engine, scaling={"mode": "External"}, replicas=1)
    )
    wait_for("the engine with churn serves", lambda: any(map(is_ready, cluster.pods(SOAKED))), timeout=240)
    [pod] = map(name_of, cluster.pods(SOAKED))
    seconds = settings.away_seconds if settings.outage else SOAK_SHORT
    container = manifests.soak_container(settings.image("engine"), CONTAINER, f"{seconds:g}", str(SOAK_WORKERS))
    patch = json.dumps({"spec": {"ephemeralContainers": [container]}})
    cluster.kubectl("patch", "pod", pod, "--subresource=ephemeralcontainers", "--type=strategic", "-p", patch)
    wait_for("the churn has begun", lambda: is_churned(cluster), timeout=60)
    yield pod
    cluster.kubectl("delete", "llmd", SOAKED, "--timeout=200s", timeout=220)


def test_none_of_thousands_of_requests_fails_without_an_api_server_and_a_full_engine_lives_on(
    fleet: Fleet, soak: str, settings: Settings, record_property: Callable[[str, object], None]
) -> None:
    if not settings.outage:
        pytest.skip("OUTAGE names no command that stops and starts this cluster's API server")
    cluster, operator = fleet.cluster, fleet.operator
    cluster.apply(manifests.llm_deployment(FULL, scaling={"mode": "External"}, replicas=1))
    wait_for("the engine to fill serves", lambda: is_serving(cluster), timeout=240)
    [full] = cluster.pods(FULL)
    before, old = operator.memory(), fleet.names()
    reach.start(cluster, settings.image("engine"))
    crowd = jobs.start_client(cluster, "crowd", settings.image("engine"), FULL, "--long", "--each", str(CROWD))
    loads, began = fleet.start("away"), time.monotonic()
    wait_for("the engine is full", lambda: fleet.value(full, contract.REQUESTS_WAITING) > 0, timeout=180)
    gone = time.monotonic()
    run(*settings.outage, "stop", "kube-apiserver")
    try:
        time.sleep(settings.away_seconds)
    finally:
        record_property(LASTED, time.monotonic() - gone)
        run(*settings.outage, "start", "kube-apiserver")
    wait_for("the API server answers", lambda: cluster.text("/readyz") == "ok", timeout=60, every=0.2)
    back = time.monotonic()
    fleet.change(rollout={"maxSurge": SURGE})
    cluster.kubectl("delete", "service", f"{NAME}-engines")
    wait_for("the changed spec and the child are reconciled", lambda: is_reconciled(cluster), timeout=240, every=0.5)
    restored = reach.seconds_back(cluster)
    wait_for("all is as before", lambda: is_settled(fleet) and time.monotonic() > back + AFTER, timeout=240)
    is_full = fleet.value(full, contract.REQUESTS_WAITING) > 0
    least = int(REQUESTS * min(1.0, settings.away_seconds / SHORT))
    busy.check(loads, f"API server away for {settings.away_seconds:.0f} s", began, least=least)
    cluster.kubectl("delete", "job", crowd.name)  # its requests may fail: no engine can serve them all
    after = operator.memory()
    say(f"the operator before: {before}, after: {after}")
    assert is_full
    assert fleet.names() == old
    assert {status["restartCount"] for pod in engines(fleet) for status in pod["status"]["containerStatuses"]} == {0}
    assert restored <= RESTORED
    assert after.peak <= GROWTH * before.peak
    assert after.peak < most_memory(RESOURCES)
    cluster.kubectl("delete", "llmd", FULL, "--timeout=200s", timeout=220)


def test_row_soak_with_churn_leaves_memory_descriptors_and_tasks_flat(
    cluster: Cluster, soak: str, settings: Settings
) -> None:
    account = wait_for("the soak ends", lambda: soaked(cluster, soak), timeout=settings.away_seconds + 120)
    statuses = Counter({int(status): count for status, count in account["statuses"].items()})
    samples = account["samples"]
    say(
        f"{statuses.total()} answers in {account['seconds']:.0f} s: {statuses}; {len(samples)} rounds: {summary(samples)}"
    )
    assert faults(samples) == []
    assert statuses.keys() <= EXPECTED
    assert statuses.total() >= SOAK_ANSWERS * account["seconds"]


def is_churned(cluster: Cluster) -> bool:
    """True once the ephemeral container of the engine with churn runs."""
    found = [each for pod in cluster.pods(SOAKED) for each in pod["status"].get("ephemeralContainerStatuses", [])]
    return any("running" in each["state"] for each in found)


def soaked(cluster: Cluster, pod: str) -> Object | None:
    """The account of the soak; None before its end. Raises AssertionError if it ended without one."""
    lines = cluster.kubectl("logs", pod, "-c", "soak", "--tail=60").splitlines()
    assert not any(line.startswith("Traceback") for line in lines), "\n".join(lines)
    return next((json.loads(line) for line in lines if line.startswith("{")), None)


def is_serving(cluster: Cluster) -> bool:
    """True if the engine to fill is ready."""
    return any(map(is_ready, cluster.pods(FULL)))


def is_settled(fleet: Fleet) -> bool:
    """True if both replicas are endpoints again."""
    return len(fleet.cluster.endpoints(NAME)) == len(fleet.serving()) == len(fleet.names())


def engines(fleet: Fleet) -> list[Object]:
    """The pods of both resources."""
    return [*fleet.cluster.pods(FULL), *fleet.cluster.pods(NAME)]


@contextmanager
def described(cluster: Cluster) -> Iterator[None]:
    """The CRD with another description of the resource, until the block ends."""
    where = "/spec/versions/0/schema/openAPIV3Schema/description"
    crd = cluster.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD}") or {}
    before = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"]

    def describe(text: str) -> None:
        patch = json.dumps([{"op": "replace", "path": where, "value": text}])
        run("kubectl", "patch", "crd", CRD, "--type=json", "-p", patch)

    describe(f"{before} Its versions were forgotten.")
    try:
        yield
    finally:
        describe(before)


def watched_from(cluster: Cluster, version: str) -> str:
    """What a watch of the resources from a version shows within a second."""
    where = f"{CUSTOM}/namespaces/{cluster.namespace}/{contract.PLURAL}"
    return cluster.text(f"{where}?watch=true&timeoutSeconds=1&resourceVersion={version}") or ""


def staying(cluster: Cluster) -> set[str]:
    """The names of the pods on the lost node, and in place of them, that are not being deleted."""
    return {name_of(pod) for pod in cluster.pods(LOST) if "deletionTimestamp" not in pod["metadata"]}


def placed(cluster: Cluster) -> Object:
    """The node selector of the hidden resource's pods."""
    found: Object = (cluster.deployment(HIDDEN) or {})["spec"]["template"]["spec"].get("nodeSelector") or {}
    return found


def is_reconciled(cluster: Cluster) -> bool:
    """True if the fleet's status and Deployment match its spec, and the deleted child exists again."""
    resource, deployment = cluster.resource(NAME) or {}, cluster.deployment(NAME) or {}
    return bool(
        resource["status"]["observedGeneration"] == resource["metadata"]["generation"]
        and deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == SURGE
        and engines_service(cluster)
    )


def engines_service(cluster: Cluster) -> Object | None:
    """A child that the story deletes."""
    return cluster.get(f"/api/v1/namespaces/{cluster.namespace}/services/{NAME}-engines")
