"""Part 3, continued: an HPA drives spec.replicas, an engine dies, pods are evicted, a node is reclaimed, all is deleted.

No request of the official client fails meanwhile. At the end an operator starts where the CRD is missing.
"""

import time
from collections.abc import Iterator

import pytest

from e2e.framework import images, jobs, manifests
from e2e.framework.cluster import Cluster, Object, Recorder, is_ready, name_of, run, say, wait_for
from e2e.framework.disruption import evict, free_nodes, may_taint, tainted, wait_until_ended
from e2e.framework.operator_pod import CRD, REPLICAS, Operator
from e2e.framework.settings import ROOT, Settings

CLIENTS = 4  # of each load
AT_MOST = 900  # seconds of the loads, which are ended when the node was reclaimed
HPA: Object = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "chat"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "sluice.dev/v1alpha1", "kind": "LLMDeployment", "name": "chat"},
        "minReplicas": 2,
        "maxReplicas": 3,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
            }
        ],
    },
}

# Kills the engine's process from inside its container, because the image has no `kill`. The container ends with the
# engine, so a child of this program kills one second later, when kubectl has its output.
KILL_ENGINE = """
import os, signal, time
from pathlib import Path
me = os.getpid()
children = [
    int(entry.name) for entry in Path("/proc").iterdir()
    if entry.name.isdigit() and int(entry.name) not in (1, me)
    and Path(entry, "stat").read_text().rpartition(")")[2].split()[1] == "1"
    and Path(entry, "cmdline").read_bytes()
]
print(len(children), flush=True)
if os.fork() == 0:
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    time.sleep(1)
    for child in children:
        os.kill(child, signal.SIGKILL)
"""

OWNED = (
    "deployments", "replicasets", "pods", "services", "endpointslices", "serviceaccounts", "secrets", "configmaps",
    "poddisruptionbudgets",
)  # fmt: skip


def test_a_horizontal_pod_autoscaler_drives_external_mode(cluster: Cluster, operator: Operator) -> None:
    cluster.patch("llmd", "chat", {"spec": {"scaling": {"mode": "External"}, "replicas": 1}})
    cluster.apply(HPA)
    wait_for("the HPA sets spec.replicas", lambda: (cluster.resource("chat") or {})["spec"]["replicas"] == 2, 240)
    wait_for("2 pods serve", lambda: sum(is_ready(pod) for pod in cluster.pods("chat")) == 2, timeout=300)
    assert (cluster.deployment("chat") or {})["spec"]["replicas"] == 2
    scale = cluster.get(f"/apis/sluice.dev/v1alpha1/namespaces/{cluster.namespace}/llmdeployments/chat/scale") or {}
    assert scale["spec"]["replicas"] == 2
    assert scale["status"]["selector"]
    cluster.kubectl("delete", "hpa", "chat")


def test_a_killed_engine_is_replaced_while_the_other_serves(cluster: Cluster, settings: Settings) -> None:
    # a pod of the last scale-in may still be terminating
    killed_pod, survivor = (pod for pod in cluster.pods("chat") if is_ready(pod))
    others = jobs.start_client(
        cluster, "others", settings.image("engine"), "chat",
        "--seconds", "20", "--each", "4", "--pin", f"http://{survivor['status']['podIP']}:8000",
    )  # fmt: skip
    killed = cluster.kubectl("exec", name_of(killed_pod), "--", manifests.PYTHON, "-c", KILL_ENGINE)
    assert int(killed) >= 1

    def healed() -> bool:
        pods = {name_of(pod): pod for pod in cluster.pods("chat")}
        started = pods.get(name_of(killed_pod), killed_pod)["status"]["containerStatuses"][0]["restartCount"]
        new = bool(set(pods) - {name_of(killed_pod), name_of(survivor)})
        return (started >= 1 or new) and sum(is_ready(pod) for pod in pods.values()) == 2

    wait_for(f"the engine of {name_of(killed_pod)} is replaced", healed, timeout=300)
    for pod in cluster.pods("chat"):
        for status in pod["status"].get("containerStatuses", []):
            assert status.get("lastState", {}).get("terminated", {}).get("exitCode") != 0
    account = others.wait(timeout=300)
    assert account["failed"] == []
    assert account["retries"] == 0


@pytest.fixture(scope="module")
def pair(cluster: Cluster, operator: Operator) -> None:
    """Two replicas serve."""
    cluster.patch("llmd", "chat", {"spec": {"scaling": {"mode": "Auto", "minReplicas": 2, "maxReplicas": 2}}})
    wait_for("2 pods serve", lambda: len(serving(cluster)) == len(cluster.pods("chat")) == 2, timeout=300)


@pytest.fixture(scope="module")
def loads(cluster: Cluster, operator: Operator, settings: Settings, pair: None) -> list[jobs.Load]:
    """Official clients of the model's own Service and of the gateway, from before the first eviction on."""
    urls = {"disrupted": f"http://chat.{cluster.namespace}.svc:8000", "disrupted-routed": operator.gateway_url}
    image = images.make_client(settings)
    return [jobs.start_official(cluster, name, image, "chat", url, CLIENTS, AT_MOST) for name, url in urls.items()]


def test_every_pod_is_evicted_under_load_and_one_always_serves(
    cluster: Cluster, loads: list[jobs.Load], recorder: Recorder
) -> None:
    """As `kubectl drain` does with one node after the other: a pod drains, and its replacement serves."""
    began = recorder.now()
    for pod in serving(cluster):
        evict(cluster, pod)
        wait_until_ended(cluster, pod, "chat")
        wait_for("2 pods serve again", lambda: len(serving(cluster)) == 2, timeout=240)
    assert all(load.is_running() for load in loads)
    assert 0.0 not in recorder.values("ready", since=began).get("ready", [])


def test_a_reclaimed_node_ends_a_pod_and_the_other_one_serves(cluster: Cluster, loads: list[jobs.Load]) -> None:
    """As a spot node that is taken back: NoExecute asks no PodDisruptionBudget, and the replacement finds no node.

    All other pods of the node tolerate the taint, so it stands for the one node of the reclaimed pod.
    """
    if not may_taint():
        pytest.skip("this user may not taint nodes and change pods of all namespaces: no node can be reclaimed here")
    lost, survivor = serving(cluster)
    if others := free_nodes(cluster, but=lost["spec"]["nodeName"]):
        pytest.skip(f"the replacement would find a node: {', '.join(others)}")
    with tainted(lost):
        wait_until_ended(cluster, lost, "chat")
        assert [pod["metadata"]["uid"] for pod in serving(cluster)] == [survivor["metadata"]["uid"]]
        assert (cluster.deployment("chat") or {})["spec"]["replicas"] == 2
    wait_for("its replacement serves once there is a node", lambda: len(serving(cluster)) == 2, timeout=240)


def test_no_request_failed_while_pods_were_evicted_and_a_node_was_reclaimed(loads: list[jobs.Load]) -> None:
    for load in loads:
        account = load.finish()
        assert account["failed"] == []
        assert account["requests"] >= 10 * CLIENTS


def test_delete_leaves_nothing_behind(cluster: Cluster, operator: Operator) -> None:
    started = time.monotonic()
    cluster.kubectl("delete", "llmd", "--all", "--timeout=100s")
    wait_for("every child is gone", lambda: not left_over(cluster), timeout=400)
    say(f"nothing left {time.monotonic() - started:.0f} s after kubectl delete")
    operator.uninstall()
    assert operator_left_over(cluster, operator.release) == []


@pytest.fixture
def without_crd(cluster: Cluster, operator: Operator) -> Iterator[Operator]:
    """The release, installed again where its CRD is not."""
    operator.uninstall()
    if cluster.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD}") is not None:
        pytest.skip("another release brought the CRD, and its resources would go with it")
    try:
        operator.install("crds.install=false", until_ready=False)  # a gateway is ready when it knows its models
        yield operator
    finally:
        operator.uninstall()
        run("kubectl", "delete", "crd", CRD, "--ignore-not-found", "--timeout=60s")


def test_row_an_operator_whose_crd_is_missing_waits_and_says_so_and_leads_once_it_is_there(
    without_crd: Operator,
) -> None:
    waiting = f"the CustomResourceDefinition {CRD} is not installed. `sluice crds | kubectl apply -f -`."
    wait_for("2 operators run", lambda: sum(is_ready(pod) for pod in without_crd.pods()) == REPLICAS, timeout=60)
    wait_for("the operator says that it waits", lambda: waiting in without_crd.logs(), timeout=60)
    assert not without_crd.leads()
    run("kubectl", "apply", "--server-side", "-f", str(ROOT / "crds/sluice.dev_llmdeployments.yaml"))
    wait_for("the operator leads", without_crd.leads, timeout=60)
    # The leader makes the Secret that they mount; the kubelet tries that again after up to two minutes.
    wait_for("the gateways are ready", lambda: all(is_ready(pod) for pod in without_crd.gateways()), timeout=150)
    assert without_crd.restarts() == 0


def serving(cluster: Cluster) -> list[Object]:
    """chat's pods that are ready and not being deleted."""
    return [pod for pod in cluster.pods("chat") if is_ready(pod)]


def left_over(cluster: Cluster) -> str:
    """Names of all objects that still have the label of the engines."""
    found = cluster.kubectl("get", ",".join(OWNED), "-l", "app.kubernetes.io/name=sluice-engine", "-o", "name")
    return found.strip()


def operator_left_over(cluster: Cluster, release: str) -> list[str]:
    """Cluster-wide objects of the release that still exist. The CRD stays, as Helm's convention is."""
    mark = "meta.helm.sh/release-name"
    return [
        f"{kind}/{name_of(thing)}"
        for kind in ("clusterroles", "clusterrolebindings")
        for thing in (cluster.get(f"/apis/rbac.authorization.k8s.io/v1/{kind}") or {}).get("items", [])
        if thing["metadata"].get("annotations", {}).get(mark) == release
    ]
