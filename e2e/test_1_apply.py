"""Part 1: rejection of invalid resources, a first deployment, kubectl output, conditions, and a streamed response."""

import json
import time

import pytest

from e2e.framework import jobs, manifests, model
from e2e.framework.cluster import Cluster, CommandFailed, Object, Recorder, is_ready, name_of, say, wait_for
from e2e.framework.operator_pod import Operator
from e2e.framework.settings import Settings
from sluice import contract

ON = ("Ready", "Available", "ModelLoaded", "ScalingActive")
GPU = "nvidia.com/gpu"
GPU_OF_NO_NODE = "example.com/no-such-gpu"
# seconds within which the operator deletes a crashed pod of its own; the first deletion comes after 20 s
HEALED_AFTER = 45.0


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"scaling": {"minReplicas": 3, "maxReplicas": 2}},
            "scaling.minReplicas must be less than or equal to scaling.maxReplicas",
        ),
        (
            {"admission": {"concurrency": {"min": 9, "max": 8}}},
            "admission.concurrency.min must be less than or equal to admission.concurrency.max",
        ),
        ({"engine": {"accelerator": {"count": 17}}}, "spec.engine.accelerator.count"),
        ({"model": {"uri": ""}}, "spec.model.uri"),
        ({"slo": {"itlMilliseconds": -1}}, "spec.slo.itlMilliseconds"),
        ({"scaling": {"mode": "Sometimes"}}, "spec.scaling.mode"),
        ({"engine": {"scheduling": {"maxNumSeqs": "many"}}}, "spec.engine.scheduling.maxNumSeqs"),
        (
            {"engine": {"template": {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}}},
            "engine.template.volumes must not use hostPath",
        ),
        (
            {"engine": {"template": {"securityContext": {"privileged": True}}}},
            "engine.template.securityContext must not set privileged",
        ),
        (
            {"engine": {"template": {"env": [{"name": "SLUICE_PORT", "value": "1"}]}}},
            "engine.template.env must not set what the operator manages",
        ),
    ],
)
def test_a_bad_resource_is_refused_with_a_sentence(
    cluster: Cluster, operator: Operator, spec: Object, sentence: str
) -> None:
    with pytest.raises(CommandFailed, match=sentence):
        cluster.apply(manifests.llm_deployment("bad", **spec))
    assert cluster.resource("bad") is None


def test_an_unknown_field_is_refused_in_strict_mode(cluster: Cluster, operator: Operator) -> None:
    with pytest.raises(CommandFailed, match="unknown field"):
        cluster.apply(manifests.llm_deployment("bad", scalling={}))


@pytest.fixture(scope="module")
def foreign(cluster: Cluster, operator: Operator, settings: Settings) -> float:
    """Pods that have the labels of two resources' engines and no owning ReplicaSet.

    `guest` is ready and answers as an engine, `wreck` crashes as one. Each test deletes its own pod. The value is the
    monotonic time of their creation.
    """
    image = settings.image("engine")
    cluster.apply(
        manifests.foreign_pod("guest", "absent", image, "serve"),
        manifests.foreign_pod("wreck", "vast", image, "crash"),
    )
    return time.monotonic()


def test_apply_creates_a_serving_model_with_true_conditions(
    cluster: Cluster, recorder: Recorder, foreign: float
) -> None:
    scaling = {"minReplicas": 1, "maxReplicas": 2, "scaleDownStabilizationSeconds": 30, "burstMemorySeconds": 60}
    cluster.apply(
        manifests.llm_deployment("chat", scaling=scaling),
        manifests.llm_deployment("absent", model={"uri": "pvc://models/no-such-model"}),
        manifests.llm_deployment("vast", engine=manifests.engine(accelerator={"resource": GPU_OF_NO_NODE, "count": 1})),
    )
    wait_for(f"{', '.join(ON)} of chat are true", lambda: all(is_true(cluster, "chat", kind) for kind in ON), 400)
    status = (cluster.resource("chat") or {})["status"]
    assert status["readyReplicas"] == 1
    assert status["url"].startswith(f"http://chat.{cluster.namespace}.svc")


def test_the_image_computes_with_the_compiled_library(cluster: Cluster) -> None:
    said = cluster.kubectl(
        "logs", "--selector", f"{contract.LABEL_INSTANCE}=chat", "--container", "engine", "--tail=-1"
    )
    assert "the model's layers are run by the compiled decoder" in said, said


def test_kubectl_get_reads_well(cluster: Cluster) -> None:
    table = cluster.kubectl("get", "llmd", "chat", "-o", "wide")
    say(f"kubectl get llmd chat -o wide\n{table}")
    head, row = table.splitlines()
    for column in ("MODEL", "READY", "REPLICAS", "DESIRED", "KV%", "TTFT", "ITL", "REASON", "AGE", "LIMIT", "SLO"):
        assert column in head.split(), head
    assert row.split()[:5] == ["chat", "pvc://models/tiny", "True", "1", "1"]  # name, model, ready, replicas, desired


def test_a_chat_is_streamed_through_the_service_from_inside_the_cluster(cluster: Cluster, settings: Settings) -> None:
    url = f"http://chat.{cluster.namespace}.svc:8000"
    known = model.written(cluster)
    command = [manifests.SLUICE, "chat", "--url", url, known["question"]]
    jobs.start(cluster, manifests.client_job("chat", settings.image("engine"), command))
    jobs.wait_until_done(cluster, "chat", timeout=300)
    answer = " ".join(jobs.log_of(cluster, "chat").split())
    say(f"{known['question']} {answer}")
    assert answer == " ".join(known["answer"].split())


def test_a_foreign_pod_with_an_engines_labels_is_neither_counted_nor_asked(
    cluster: Cluster, operator: Operator, foreign: float
) -> None:
    wait_for("the foreign pod is ready", lambda: is_ready(pod_named(cluster, "guest")), timeout=120)
    operator.wait_for_passes(8)
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/guest:{contract.ADMIN_PORT}/proxy/asked"
    asked = json.loads(cluster.text(path) or "null")
    status, available = (cluster.resource("absent") or {})["status"], cluster.condition("absent", "Available")
    cluster.kubectl("delete", "pod", "guest")
    assert asked == []
    assert status["readyReplicas"] == 0
    assert available["status"] == "False", available


def test_a_foreign_pod_that_crashes_is_not_deleted(cluster: Cluster, foreign: float) -> None:
    def deleted() -> bool:
        metadata = pod_named(cluster, "wreck")["metadata"]
        return not metadata or "deletionTimestamp" in metadata

    wait_for(
        "time in which the operator deletes crashed pods of its own",
        lambda: deleted() or time.monotonic() > foreign + HEALED_AFTER,
        timeout=2 * HEALED_AFTER,
    )
    assert not deleted()
    [status] = pod_named(cluster, "wreck")["status"]["containerStatuses"]
    cluster.kubectl("delete", "pod", "wreck")
    assert status["restartCount"] >= 1


def test_a_missing_model_is_reported_with_its_path_and_a_hint(cluster: Cluster) -> None:
    found = wait_for_reason(cluster, "absent", "ModelNotFound")
    assert f"{manifests.MODELS}/no-such-model" in found["message"]
    assert "spec.model.uri" in found["message"]


def test_an_accelerator_that_no_node_has_is_reported_in_the_schedulers_words(cluster: Cluster) -> None:
    found = wait_for_reason(cluster, "vast", "Unschedulable")
    assert f"Insufficient {GPU_OF_NO_NODE}" in found["message"]


def test_a_requested_gpu_that_is_not_visible_is_reported(cluster: Cluster, settings: Settings) -> None:
    """Needs a node that offers GPUs; the test above covers clusters without one."""
    nodes = (cluster.get("/api/v1/nodes") or {})["items"]
    if not any(int(node["status"]["allocatable"].get(GPU, "0")) for node in nodes):
        pytest.skip(f"no node of this cluster offers {GPU}: a pod that got one cannot be had here")
    image = settings.image("engine")  # instead of the image for GPUs, which this suite does not build
    cluster.apply(manifests.llm_deployment("blind", engine=manifests.engine(accelerator={"count": 1}, image=image)))
    found = wait_for_reason(cluster, "blind", "AcceleratorNotFound")
    assert "spec.engine.accelerator.count" in found["message"]
    cluster.kubectl("delete", "llmd", "blind")


def test_faulty_resources_do_not_affect_the_healthy_one(cluster: Cluster) -> None:
    cluster.kubectl("delete", "llmd", "absent", "vast")
    assert is_true(cluster, "chat", "Ready")
    [pod] = [pod for pod in cluster.pods("chat") if is_ready(pod)]
    assert {status["restartCount"] for status in pod["status"]["containerStatuses"]} == {0}
    say(f"chat is served by {name_of(pod)}")


def pod_named(cluster: Cluster, name: str) -> Object:
    """A pod by its name, independent of labels and owners; empty if it does not exist."""
    return cluster.get(f"/api/v1/namespaces/{cluster.namespace}/pods/{name}") or {"metadata": {}}


def is_true(cluster: Cluster, name: str, kind: str) -> bool:
    """True if the condition's status is True."""
    return bool(cluster.condition(name, kind).get("status") == "True")


def wait_for_reason(cluster: Cluster, name: str, reason: str) -> Object:
    """Wait until Ready is False for that reason; returns the condition."""

    def probe() -> Object | None:
        found = cluster.condition(name, "Ready")
        return found if found.get("status") == "False" and found.get("reason") == reason else None

    found = wait_for(f"{name}: Ready=False {reason}", probe, timeout=300)
    say(f"{name}: {found['message']}")
    return found
