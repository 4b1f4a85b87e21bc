"""First part of the story: what is refused, what is applied, what kubectl shows, and the first streamed answer."""

import pytest

from e2e import jobs, manifests
from e2e.cluster import Cluster, CommandFailed, Object, Recorder, is_ready, name_of, say, wait_for
from e2e.operator_pod import Operator
from e2e.settings import Settings

ON = ("Ready", "Available", "ModelLoaded", "ScalingActive")
GPUS_OF_NO_NODE = 1000
GPU = "nvidia.com/gpu"


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
        ({"model": {"uri": ""}}, "spec.model.uri"),
        ({"slo": {"itlMilliseconds": -1}}, "spec.slo.itlMilliseconds"),
        ({"scaling": {"mode": "Sometimes"}}, "spec.scaling.mode"),
        ({"engine": {"scheduling": {"maxNumSeqs": "many"}}}, "spec.engine.scheduling.maxNumSeqs"),
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


def test_apply_brings_a_model_that_serves_and_conditions_that_say_so(cluster: Cluster, recorder: Recorder) -> None:
    scaling = {"minReplicas": 1, "maxReplicas": 2, "scaleDownStabilizationSeconds": 30}
    cluster.apply(
        manifests.llm_deployment("chat", scaling=scaling),
        manifests.llm_deployment("absent", model={"uri": "pvc://models/no-such-model"}),
        manifests.llm_deployment("vast", engine=manifests.engine(accelerator={"count": GPUS_OF_NO_NODE})),
    )
    wait_for(f"{', '.join(ON)} of chat are true", lambda: all(is_true(cluster, "chat", kind) for kind in ON), 400)
    status = (cluster.resource("chat") or {})["status"]
    assert status["readyReplicas"] == 1
    assert status["url"].startswith(f"http://chat.{cluster.namespace}.svc")


def test_kubectl_get_reads_well(cluster: Cluster) -> None:
    table = cluster.kubectl("get", "llmd", "chat", "-o", "wide")
    say(f"kubectl get llmd chat -o wide\n{table}")
    head, row = table.splitlines()
    for column in ("MODEL", "READY", "REPLICAS", "KV%", "TTFT", "ITL", "REASON", "AGE", "LIMIT", "SLO"):
        assert column in head.split(), head
    assert "chat" in row
    assert "1/1" in row
    assert "True" in row


def test_a_chat_is_streamed_through_the_service_from_inside_the_cluster(cluster: Cluster, settings: Settings) -> None:
    url = f"http://chat.{cluster.namespace}.svc:8000"
    known = jobs.account_of(cluster, "model")  # by inpod/references.py
    command = [manifests.SLUICE, "chat", "--url", url, known["question"]]
    jobs.start(cluster, manifests.client_job("chat", settings.image("engine"), command))
    jobs.wait_until_done(cluster, "chat", timeout=300)
    answer = " ".join(jobs.log_of(cluster, "chat").split())
    say(f"{known['question']} {answer}")
    assert answer == " ".join(known["answer"].split())


def test_a_missing_model_is_said_with_its_path_and_a_hint(cluster: Cluster) -> None:
    found = wait_for_reason(cluster, "absent", "ModelNotFound")
    assert f"{manifests.MODELS}/no-such-model" in found["message"]
    assert "spec.model.uri" in found["message"]


def test_more_gpus_than_any_node_has_is_unschedulable_in_the_schedulers_words(cluster: Cluster) -> None:
    found = wait_for_reason(cluster, "vast", "Unschedulable")
    assert f"Insufficient {GPU}" in found["message"]


def test_a_gpu_asked_for_and_none_visible_fails_clearly(cluster: Cluster) -> None:
    """Where a node offers GPUs: one that does not is the test before."""
    nodes = (cluster.get("/api/v1/nodes") or {})["items"]
    if not any(int(node["status"]["allocatable"].get(GPU, "0")) for node in nodes):
        say(f"no node offers {GPU}: a pod that got one cannot be had here")
        return
    cluster.apply(manifests.llm_deployment("blind", engine=manifests.engine(accelerator={"count": 1})))
    found = wait_for_reason(cluster, "blind", "AcceleratorNotFound")
    assert "spec.engine.accelerator.count" in found["message"]
    cluster.kubectl("delete", "llmd", "blind")


def test_the_broken_ones_did_not_touch_the_good_one(cluster: Cluster) -> None:
    cluster.kubectl("delete", "llmd", "absent", "vast")
    assert is_true(cluster, "chat", "Ready")
    [pod] = [pod for pod in cluster.pods("chat") if is_ready(pod)]
    assert [status["restartCount"] for status in pod["status"]["containerStatuses"]] == [0]
    say(f"chat is served by {name_of(pod)}")


def is_true(cluster: Cluster, name: str, kind: str) -> bool:
    """Whether a condition holds."""
    return bool(cluster.condition(name, kind).get("status") == "True")


def wait_for_reason(cluster: Cluster, name: str, reason: str) -> Object:
    """Until Ready is False for that reason; returns the condition."""

    def probe() -> Object | None:
        found = cluster.condition(name, "Ready")
        return found if found.get("status") == "False" and found.get("reason") == reason else None

    found = wait_for(f"{name}: Ready=False {reason}", probe, timeout=300)
    say(f"{name}: {found['message']}")
    return found
