"""Ready says that this generation serves: over passes, with a Deployment controller that may be behind."""

from typing import Any

import pytest

from tests.operator.fake_cluster import KEY, Clock, FakeCluster, cluster_with, manifest, operator, pod
from tests.operator.reconcile.test_problems import CRASHED

NEW_MODEL: dict[str, Any] = {"model": {"uri": "pvc://models/other"}}


class Story:
    """One resource over passes of one operator."""

    def __init__(self, **spec: Any) -> None:
        self.cluster: FakeCluster = cluster_with(manifest(**spec))
        self.clock = Clock()
        self.reconciler = operator(self.cluster, clock=self.clock)

    async def look(self) -> dict[str, tuple[str, str]]:
        """What the conditions say after one more pass; all of them speak of the newest generation."""
        self.clock.now += 5
        await self.reconciler.reconcile(KEY)
        listed = self.cluster.status["conditions"]
        generation = self.cluster.resource["metadata"]["generation"]
        assert {each["observedGeneration"] for each in listed} == {generation}
        return {each["type"]: (each["status"], each["reason"]) for each in listed}

    async def served(self, *names: str) -> dict[str, tuple[str, str]]:
        """Until these pods serve and the resource has settled."""
        await self.look()
        self.cluster.pods = [pod(name) for name in names or ("a",)]
        await self.look()
        return await self.look()


async def test_right_after_a_change_of_the_template_ready_is_false_while_old_pods_serve() -> None:
    story = Story()
    assert (await story.served())["Ready"] == ("True", "Serving")
    story.cluster.controlled = False  # no controller has seen the write yet
    story.cluster.edit(**NEW_MODEL)
    for _ in range(2):
        said = await story.look()
        assert said["Ready"] == ("False", "RollingOut")
        assert said["Available"] == ("True", "ReplicasReady")
        assert said["Progressing"] == ("True", "RollingOut")
        assert said["ModelLoaded"][0] == "Unknown"


async def test_ready_is_true_again_once_every_pod_has_the_new_template() -> None:
    story = Story()
    await story.served()
    story.cluster.edit(**NEW_MODEL)
    story.cluster.newest = "v2"
    assert (await story.look())["Ready"] == ("False", "RollingOut")
    story.cluster.pods = [pod("a"), pod("b", ready=False, hash_="v2", conditions=[])]
    assert (await story.look())["Ready"] == ("False", "RollingOut")
    story.cluster.pods = [pod("a"), pod("b", hash_="v2")]
    assert (await story.look())["Ready"] == ("False", "RollingOut")
    story.cluster.pods = [pod("b", hash_="v2")]
    assert (await story.look())["Ready"] == ("True", "Serving")


async def test_a_stalled_rollout_is_available_but_not_ready_until_a_rollback() -> None:
    story = Story()
    await story.served()
    story.cluster.edit(**NEW_MODEL)
    story.cluster.newest = "v2"
    await story.look()
    story.cluster.pods = [pod("a"), pod("b", ready=False, hash_="v2", **CRASHED)]
    said = await story.look()
    assert said["Available"][0] == "True"
    assert said["Ready"] == said["Progressing"] == ("False", "RolloutStalled")
    assert "ModelNotFound" in story.cluster.condition("Ready")["message"]
    story.cluster.edit()
    story.cluster.newest, story.cluster.pods = "v1", [pod("a")]
    await story.look()
    assert (await story.look())["Ready"] == ("True", "Serving")


async def test_a_change_of_the_count_alone_leaves_ready_as_it_is() -> None:
    story = Story()
    await story.served()
    story.cluster.controlled = False
    story.cluster.edit(scaling={"minReplicas": 3, "maxReplicas": 4})
    assert (await story.look())["Ready"] == ("True", "Serving")
    assert story.cluster.deployment["spec"]["replicas"] == 3


async def test_a_change_that_rolls_nothing_leaves_ready_as_it_is() -> None:
    story = Story()
    await story.served()
    story.cluster.edit(slo={"itlMilliseconds": 80})
    assert (await story.look())["Ready"] == ("True", "Serving")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("spec", "ready"), [({}, "True"), (NEW_MODEL, "False")], ids=["same", "another template"])
async def test_a_paused_resource_is_ready_only_where_its_pods_are_of_this_spec(
    spec: dict[str, Any], ready: str, restarted: bool
) -> None:
    story = Story()
    await story.served()
    story.cluster.edit(paused=True, **spec)
    if restarted:
        story.reconciler = operator(story.cluster, clock=story.clock)
    said = await story.look()
    assert (said["Ready"][0], said["Available"][0], said["Paused"][0]) == (ready, "True", "True")


async def test_a_replica_failure_of_an_earlier_template_is_ignored() -> None:
    story = Story()
    await story.served()
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    story.cluster.store.set_status(
        "Deployment", KEY.namespace, KEY.name, story.cluster.deployment["status"] | {"conditions": [late]}
    )
    story.cluster.controlled = False
    story.cluster.edit(**NEW_MODEL)
    assert (await story.look())["Ready"] == ("False", "RollingOut")
