"""Part 1, continued: rows about what others get wrong: a hub that refuses, a model too large, engines' metrics that lie.

A pod of the suite is the hub, because the cluster may have no way to the outside. Takes four minutes.
"""

import time
from collections.abc import Iterator

import pytest

from e2e.framework import manifests
from e2e.framework.cluster import Cluster, Object, is_ready, name_of, say, wait_for
from e2e.framework.operator_pod import Operator
from e2e.framework.settings import Settings
from e2e.inpod.hub import FAULTS, GATED, LARGE, PRIVATE, TOKEN
from sluice import contract

HUB = "hub"
MODEL = "hf://org/model"
SYNC = "example.com/synced"  # the kubelet updates the volumes of a changed pod at once
RETRIED = 200.0  # seconds: the kubelet may need 90 s, and the engine doubles the wait between two attempts up to 60 s
LIE = "/tmp/lie"
LIES = ("NaN", "huge", "garbage")  # one for each pod
FAULT = "/fault"
LYING: Object = {
    "env": [*manifests.engine()["template"]["env"], {"name": "PYTHONPATH", "value": FAULT}],
    "volumes": [
        {"name": "fault", "configMap": {"name": "programs", "items": [{"key": "lying.py", "path": "sitecustomize.py"}]}}
    ],
    "volumeMounts": [{"name": "fault", "mountPath": FAULT}],
}
STABILISATION = 10  # seconds of the fleet's scaleDownStabilizationSeconds
REMEMBERED = 60  # seconds of its burstMemorySeconds, the least that there is
HELD = STABILISATION + REMEMBERED + 15  # seconds after which the idle fleet would have fewer replicas by right metrics


@pytest.fixture(scope="module")
def hub(cluster: Cluster, operator: Operator, settings: Settings) -> Iterator[None]:
    """The hub, and four models that cannot be fetched from it. The operator does not ask it, so the pods tell why."""
    pod = manifests.program_pod(HUB, settings.image("engine"), "hub.py", manifests.MODEL)
    pod["metadata"]["labels"] = {"app": HUB}
    files = {"hub.py": "hub.py", "hub_server.py": "tests/hub_server.py"}
    (programs,) = (each["configMap"] for each in pod["spec"]["volumes"] if each["name"] == "programs")
    programs["items"] = [{"key": key, "path": path} for key, path in files.items()]
    ports = [{"name": f"p{port}", "port": port} for port in FAULTS]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": HUB}}
    cluster.apply(pod, service | {"spec": {"selector": {"app": HUB}, "ports": ports}})
    wait_for("the hub runs", lambda: len(cluster.endpoints(HUB)) == 1, timeout=120)
    models = [
        fetched(cluster, "private", PRIVATE, tokenSecretRef={"name": "hub-token"}),
        fetched(cluster, "gated", GATED),
        fetched(cluster, "unknown-revision", PRIVATE, uri=f"{MODEL}@v9", tokenSecretRef={"name": "hub-right"}),
        fetched(cluster, "large", LARGE),
    ]
    cluster.apply(token("hub-right", TOKEN), *models)
    yield
    cluster.kubectl("delete", "llmd", *map(name_of, models), "--timeout=100s")
    cluster.kubectl(
        "delete", f"pod/{HUB}", f"service/{HUB}", "secret/hub-token", "secret/hub-right", "--ignore-not-found"
    )


def test_row_weights_larger_than_the_memory_are_reported_with_numbers_before_they_are_fetched(
    cluster: Cluster, hub: None
) -> None:
    found = wait_for_reason(cluster, "large", "InsufficientMemory")
    assert "4 GiB of weights in float32" in found["message"]
    assert "The free memory is" in found["message"]


def test_row_a_gated_model_and_an_unknown_revision_are_reported_with_a_next_step(cluster: Cluster, hub: None) -> None:
    assert "Accept its terms" in wait_for_reason(cluster, "gated", "ModelAccessDenied")["message"]
    found = wait_for_reason(cluster, "unknown-revision", "RevisionNotFound")
    assert "v9" in found["message"]


def test_row_a_missing_and_a_wrong_token_of_the_hub_are_reported_until_the_right_one_heals(
    cluster: Cluster, hub: None
) -> None:
    wait_for_reason(cluster, "private", "SecretNotFound")
    [before] = cluster.pods("private")
    for number, value in enumerate(("hf-wrong-token", TOKEN)):
        cluster.apply(token("hub-token", value))
        cluster.kubectl("annotate", "--overwrite", "pod", name_of(before), f"{SYNC}={number}")
        if value != TOKEN:
            message = wait_for_reason(cluster, "private", "ModelAccessDenied")["message"]
            assert "does not give access" in message
            assert value not in message
    wait_for("the model is served", lambda: any(map(is_ready, cluster.pods("private"))), timeout=RETRIED)
    [after] = cluster.pods("private")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert {status["restartCount"] for status in after["status"]["containerStatuses"]} == {0}


@pytest.fixture(scope="module")
def liars(cluster: Cluster, operator: Operator) -> Iterator[list[Object]]:
    """Three idle pods that can be made to lie."""
    scaling = {"mode": "Auto", "minReplicas": len(LIES), "maxReplicas": len(LIES)}
    scaling |= {"scaleDownStabilizationSeconds": STABILISATION, "burstMemorySeconds": REMEMBERED}
    cluster.apply(manifests.llm_deployment("lying", engine=manifests.engine(template=LYING), scaling=scaling))
    wait_for("3 pods serve", lambda: len(serving(cluster)) == len(LIES), timeout=300)
    wait_for("MetricsAvailable is True", lambda: measured(cluster) == "True", timeout=60)
    yield serving(cluster)
    cluster.kubectl("delete", "llmd", "lying", "--timeout=100s")


def test_row_metrics_that_lie_hold_the_replicas_until_they_are_right(
    cluster: Cluster, operator: Operator, liars: list[Object]
) -> None:
    for pod, lie in zip(liars, LIES, strict=True):
        cluster.kubectl("exec", name_of(pod), "--", "sh", "-c", f"echo {lie} > {LIE}")
    wait_for("MetricsAvailable is False", lambda: measured(cluster) == "False", timeout=90)
    cluster.patch("llmd", "lying", {"spec": {"scaling": {"minReplicas": 1}}})
    began = time.monotonic()
    wait_for("fewer replicas are due", lambda: time.monotonic() - began > HELD, timeout=2 * HELD)
    assert replicas(cluster) == len(LIES)
    assert {each["metadata"]["uid"] for each in serving(cluster)} == {each["metadata"]["uid"] for each in liars}
    assert operator.leads()
    for pod in liars:
        cluster.kubectl("exec", name_of(pod), "--", "rm", LIE)
    wait_for("MetricsAvailable is True", lambda: measured(cluster) == "True", timeout=60)
    wait_for("fewer replicas", lambda: replicas(cluster) < len(LIES), timeout=HELD + 60)


def hub_url(cluster: Cluster, port: int) -> str:
    """The hub with the fault of that port, as pods of the cluster reach it."""
    return f"http://{HUB}.{cluster.namespace}.svc:{port}"


def fetched(cluster: Cluster, name: str, port: int, **fields: Object | str) -> Object:
    """A resource whose model is fetched from the hub at a port; `fields` of spec.model."""
    template = manifests.engine()["template"]
    env = [*template["env"], {"name": contract.ENV_HUB_ENDPOINT, "value": hub_url(cluster, port)}]
    model = {"uri": MODEL, "servedName": name, "dtype": "float32"} | fields
    return manifests.llm_deployment(name, model=model, engine=manifests.engine(template=template | {"env": env}))


def token(name: str, value: str) -> Object:
    """A Secret with a token of the hub."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"token": value}}


def wait_for_reason(cluster: Cluster, name: str, reason: str) -> Object:
    """Wait until Ready is False for that reason; returns the condition."""

    def probe() -> Object | None:
        found = cluster.condition(name, "Ready")
        return found if (found.get("status"), found.get("reason")) == ("False", reason) else None

    found = wait_for(f"{name}: Ready=False {reason}", probe, timeout=RETRIED)
    say(f"{name}: {found['message']}")
    return found


def serving(cluster: Cluster) -> list[Object]:
    """The pods of the fleet that lies which are ready and not being deleted."""
    return [pod for pod in cluster.pods("lying") if is_ready(pod)]


def measured(cluster: Cluster) -> str:
    """The status of its condition MetricsAvailable; empty without one."""
    return str(cluster.condition("lying", "MetricsAvailable").get("status", ""))


def replicas(cluster: Cluster) -> int:
    """The replicas of its Deployment."""
    return int((cluster.deployment("lying") or {})["spec"]["replicas"])
