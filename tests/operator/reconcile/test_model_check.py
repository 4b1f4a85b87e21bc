"""A model that cannot fit, or that the engine cannot serve, gets a condition before there are pods, and none is started."""

import json
from typing import Any

import pytest

from sluice_operator.cluster.client import Object
from tests.hub_server import COMMIT, Hub
from tests.operator.fake_cluster import KEY, Clock, cluster_with, deployed, manifest, operator, pod
from tests.operator.model_check.conftest import CONFIG, hub

__all__ = ["hub"]  # the fixture


def resource(memory: str | None = "8Gi", **model: Any) -> Object:
    limits = {} if memory is None else {"limits": {"memory": memory}}
    engine = {"accelerator": {"count": 0}, "resources": limits}
    return manifest(model={"uri": "hf://org/model"} | model, engine=engine)


def spec(memory: str | None = "8Gi", **model: Any) -> dict[str, Any]:
    found: dict[str, Any] = resource(memory, **model)["spec"]
    return found


async def test_a_model_that_cannot_fit_is_reported_with_numbers_and_gets_no_pod(hub: Hub) -> None:
    cluster = cluster_with(resource(maxModelLength=4096))
    reconciler = operator(cluster, hub=hub.url)
    for _ in range(3):
        await reconciler.reconcile(KEY)
    assert cluster.deployment == {}
    for kind in ("Ready", "Available", "ModelLoaded", "Progressing"):
        assert cluster.condition(kind)["status"] == "False"
        assert cluster.condition(kind)["reason"] == "InsufficientMemory"
    assert cluster.condition("Ready")["message"] == (
        "The model needs at least 15.94 GiB: 15.26 GiB of weights in bfloat16, 0.62 GiB for the KV cache of one request of 4096 "
        "tokens and 64 MiB of swap space. The memory limit of a pod is 8 GiB. Raise spec.engine.resources.limits.memory to "
        "16 GiB, or choose a smaller model. The operator starts no pod of this spec; pods of an earlier one stay."
    )
    assert [reason for reason, _, warning in cluster.events if warning] == ["InsufficientMemory"]
    assert len(hub.requests) == 4


async def test_the_condition_heals_when_the_spec_or_the_model_changes(hub: Hub) -> None:
    cluster, clock = cluster_with(resource("18Gi")), Clock()
    reconciler = operator(cluster, clock=clock, hub=hub.url)
    await reconciler.reconcile(KEY)
    message = cluster.condition("Ready")["message"]
    assert "set spec.model.maxModelLength to " in message and cluster.deployment == {}
    length = int(message.partition("maxModelLength to ")[2].partition(".")[0])
    cluster.edit(**spec("18Gi", maxModelLength=length))
    await reconciler.reconcile(KEY)
    assert cluster.deployment and cluster.condition("Ready")["reason"] == "Starting"
    assert cluster.condition("ModelLoaded")["status"] == "Unknown"


async def test_a_spec_that_cannot_fit_leaves_the_pods_of_the_one_before(hub: Hub) -> None:
    cluster = cluster_with(resource("32Gi"))
    reconciler = operator(cluster, hub=hub.url)
    await reconciler.reconcile(KEY)
    cluster.pods = [pod("a")]
    await reconciler.reconcile(KEY)
    before = cluster.deployment["spec"]
    assert cluster.condition("Ready")["status"] == "True"
    cluster.edit(**spec("8Gi"))
    await reconciler.reconcile(KEY)
    assert cluster.deployment["spec"] == before
    assert cluster.condition("Available")["status"] == "True"
    assert cluster.condition("Ready")["reason"] == cluster.condition("ModelLoaded")["reason"] == "InsufficientMemory"


async def test_pods_that_run_already_are_never_stopped_by_the_check(hub: Hub) -> None:
    cluster = deployed(cluster_with(resource("8Gi")), pod("a"))
    reconciler = operator(cluster, hub=hub.url)
    await reconciler.reconcile(KEY)
    await reconciler.reconcile(KEY)
    assert cluster.condition("Ready")["status"] == "True"
    assert hub.requests == []


async def test_an_architecture_that_is_not_served_is_named_with_what_is(hub: Hub) -> None:
    hub.files["config.json"] = json.dumps(CONFIG | {"vision_config": {}, "model_type": "qwen3_vl"}).encode()
    cluster = cluster_with(resource("64Gi"))
    await operator(cluster, hub=hub.url).reconcile(KEY)
    ready = cluster.condition("Ready")
    assert ready["reason"] == "UnsupportedArchitecture" and cluster.deployment == {}
    assert ready["message"].startswith("hf://org/model takes images (qwen3_vl), and the encoder for them is missing.")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"uri": "hf://org/absent"}, "answered 404"),
        ({"uri": "pvc://models/tiny"}, "only the pods can read the claim"),
        ({"memory": None}, "spec.engine.resources.limits.memory is not set"),
        (
            {"env": "https://mirror.example"},
            "the pods use the hub https://mirror.example, which the operator does not ask",
        ),
        ({"envFrom": "HF_"}, "the pods read HF_ENDPOINT from a Secret or a ConfigMap"),
        ({"count": 1}, "nodeSelector has no label nvidia.com/gpu.memory"),
        ({"refusal": 503}, "answered 503"),
    ],
)
async def test_a_model_that_cannot_be_checked_starts_and_the_reason_is_stated(
    hub: Hub, changes: dict[str, Any], words: str
) -> None:
    made = resource(changes.get("memory", "1Gi"), uri=changes.get("uri", "hf://org/model"))
    made["spec"]["engine"]["accelerator"]["count"] = changes.get("count", 0)
    if "env" in changes:
        made["spec"]["engine"]["template"] = {"env": [{"name": "HF_ENDPOINT", "value": changes["env"]}]}
    if "envFrom" in changes:
        template = {"envFrom": [{"prefix": changes["envFrom"], "secretRef": {"name": "hub"}}]}
        made["spec"]["engine"]["template"] = template
    hub.refusal = (503, {}) if "refusal" in changes else None
    cluster = cluster_with(made)
    reconciler = operator(cluster, hub=hub.url)
    for _ in range(2):
        await reconciler.reconcile(KEY)
        assert cluster.deployment
        message = cluster.condition("ModelLoaded")["message"]
        assert words in message and "The model was not checked before: " in message


async def test_the_recorded_revision_is_the_one_that_is_checked(hub: Hub) -> None:
    hub.moved = True  # the branch has no files now
    made = resource("8Gi")
    cluster = cluster_with(made)
    cluster.store.set_status(
        made["kind"], KEY.namespace, KEY.name, {"model": {"uri": "hf://org/model", "revision": COMMIT}}
    )
    await operator(cluster, hub=hub.url).reconcile(KEY)
    assert cluster.condition("Ready")["reason"] == "InsufficientMemory"
