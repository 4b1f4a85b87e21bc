"""The revision of a fetched model: recorded once in the status, and handed to later pods without a rollout."""

import json

import pytest

from sluice import contract
from sluice_operator.api import LLMDeploymentStatus
from sluice_operator.cluster.client import Object
from tests.operator.fake_cluster import (
    KEY,
    Clock,
    Engines,
    FakeCluster,
    cluster_with,
    exposition,
    manifest,
    operator,
    pod,
)

HUB, BUCKET, FOLDER = "hf://org/model", "s3://bucket/prefix", "file:///models/chat"
FIRST, SECOND = "a" * 40, "b" * 40


def serving(revision: str) -> Engines:
    labels = f'version="1",dtype="float32",model="chat",revision="{revision}"'
    return Engines(text=f"{exposition()}{contract.MODEL_INFO}{{{labels}}} 1\n")


def pod_of(name: str, uri: str) -> Object:
    found = pod(name)
    found["spec"]["containers"] = [{"name": "engine", "args": ["serve", uri, "--port=8000"]}]
    return found


def recorded(cluster: FakeCluster) -> Object | None:
    found = cluster.store.get("ConfigMap", KEY.namespace, f"{KEY.name}-targets") or {}
    text = found.get("data", {}).get(contract.REVISION_FILE)
    return None if text is None else dict(json.loads(text))


async def passes(cluster: FakeCluster, engines: Engines, count: int = 3) -> None:
    """A new operator process each time, so that nothing but the cluster carries the revision."""
    clock = Clock()
    for _ in range(count):
        await operator(cluster, engines, clock).reconcile(KEY)


async def test_the_first_ready_pods_revision_is_kept_and_reaches_later_pods() -> None:
    cluster = cluster_with(manifest(model={"uri": HUB}))
    await passes(cluster, serving(FIRST), 1)
    assert "model" not in cluster.status and recorded(cluster) is None
    template = cluster.deployment["spec"]["template"]
    cluster.pods = [pod_of("a", HUB)]
    await passes(cluster, serving(FIRST))
    assert cluster.status["model"] == {"uri": HUB, "revision": FIRST} == recorded(cluster)
    LLMDeploymentStatus.model_validate_json(json.dumps(cluster.status), strict=True)
    cluster.pods.append(pod_of("b", HUB))
    await passes(cluster, serving(SECOND))
    assert cluster.status["model"]["revision"] == FIRST
    assert cluster.deployment["spec"]["template"] == template, "a recorded revision must restart no pod"


async def test_another_uri_is_recorded_anew_and_only_from_its_own_pods() -> None:
    cluster = cluster_with(manifest(model={"uri": HUB}))
    await passes(cluster, serving(FIRST), 1)
    cluster.pods = [pod_of("a", HUB)]
    await passes(cluster, serving(FIRST))
    cluster.edit(model={"uri": f"{HUB}@v2"})
    await passes(cluster, serving(FIRST))
    assert "model" not in cluster.status and recorded(cluster) is None
    cluster.pods = [pod_of("b", f"{HUB}@v2")]
    await passes(cluster, serving(SECOND))
    assert cluster.status["model"] == {"uri": f"{HUB}@v2", "revision": SECOND} == recorded(cluster)


async def test_an_invalid_spec_keeps_the_record() -> None:
    cluster = cluster_with(manifest(model={"uri": HUB}))
    await passes(cluster, serving(FIRST), 1)
    cluster.pods = [pod_of("a", HUB)]
    await passes(cluster, serving(FIRST))
    cluster.edit(model={"uri": HUB}, scaling={"minReplicas": 3, "maxReplicas": 1})
    await passes(cluster, serving(SECOND))
    assert cluster.condition("Ready")["reason"] == "InvalidSpec"
    assert cluster.status["model"]["revision"] == FIRST


async def test_a_buckets_revision_follows_the_newest_start() -> None:
    cluster = cluster_with(manifest(model={"uri": BUCKET}))
    await passes(cluster, serving(FIRST), 1)
    cluster.pods = [pod_of("a", BUCKET)]
    for revision in (FIRST, SECOND):
        await passes(cluster, serving(revision))
        assert cluster.status["model"] == {"uri": BUCKET, "revision": revision}


@pytest.mark.parametrize(("uri", "revision"), [(FOLDER, FIRST), (HUB, ""), (HUB, "v1 <b>")])
async def test_a_model_that_is_not_fetched_and_no_revision_are_not_shown(uri: str, revision: str) -> None:
    cluster = cluster_with(manifest(model={"uri": uri}))
    await passes(cluster, serving(revision), 1)
    cluster.pods = [pod_of("a", uri.removeprefix("file://"))]
    await passes(cluster, serving(revision))
    assert "model" not in cluster.status and recorded(cluster) is None


@pytest.mark.parametrize("other_model", [True, False], ids=["another model", "another setting"])
async def test_pods_that_go_back_fetch_the_commit_that_their_model_had(other_model: bool) -> None:
    auto = {"rollout": {"rollback": "Auto"}}
    cluster = cluster_with(manifest(model={"uri": HUB}, **auto))
    await passes(cluster, serving(FIRST), 1)
    cluster.pods = [pod_of("a", HUB)]
    await passes(cluster, serving(FIRST))
    cluster.edit(model={"uri": "hf://org/other"} if other_model else {"uri": HUB, "maxModelLength": 64}, **auto)
    await passes(cluster, serving(FIRST), 1)
    assert recorded(cluster) == (None if other_model else {"uri": HUB, "revision": FIRST})
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    cluster.newest, status = "v2", cluster.deployment["status"]
    cluster.store.set_status("Deployment", KEY.namespace, KEY.name, status | {"conditions": [late]})
    for now in (2000.0, 2005.0):
        await operator(cluster, serving(FIRST), Clock(now)).reconcile(KEY)
    assert recorded(cluster) == {"uri": HUB, "revision": FIRST} == cluster.status["model"]
    assert cluster.condition("Ready")["reason"] == "RolledBack"
