"""Ready says that this generation serves: over passes, with a Deployment controller that may be behind."""

from typing import Any

import pytest

from sluice_operator.reconcile.reconcile import reconcile
from tests.operator.books import KEY, BookWorld, Clock, manifest, operator, pod, world_with
from tests.operator.reconcile.test_trouble import CRASHED

NEW_MODEL: dict[str, Any] = {"model": {"uri": "pvc://models/other"}}


class Story:
    """One resource over passes of one operator."""

    def __init__(self, **spec: Any) -> None:
        self.world: BookWorld = world_with(manifest(**spec))
        self.clock = Clock()
        self.context = operator(self.world, clock=self.clock)

    async def look(self) -> dict[str, tuple[str, str]]:
        """What the conditions say after one more pass; all of them speak of the newest generation."""
        self.clock.now += 5
        await reconcile(KEY, self.context)
        listed = self.world.status["conditions"]
        generation = self.world.resource["metadata"]["generation"]
        assert {each["observedGeneration"] for each in listed} == {generation}
        return {each["type"]: (each["status"], each["reason"]) for each in listed}

    async def served(self, *names: str) -> dict[str, tuple[str, str]]:
        """Until these pods serve and the resource has settled."""
        await self.look()
        self.world.pods = [pod(name) for name in names or ("a",)]
        await self.look()
        return await self.look()


async def test_right_after_a_change_of_the_template_ready_is_false_while_old_pods_serve() -> None:
    story = Story()
    assert (await story.served())["Ready"] == ("True", "Serving")
    story.world.controlled = False  # no controller has seen the write yet
    story.world.edit(**NEW_MODEL)
    for _ in range(2):
        said = await story.look()
        assert said["Ready"] == ("False", "RollingOut")
        assert said["Available"] == ("True", "ReplicasReady")
        assert said["Progressing"] == ("True", "RollingOut")
        assert said["ModelLoaded"][0] == "Unknown"


async def test_ready_comes_back_once_every_pod_is_of_the_new_template() -> None:
    story = Story()
    await story.served()
    story.world.edit(**NEW_MODEL)
    story.world.newest = "v2"
    assert (await story.look())["Ready"] == ("False", "RollingOut")
    story.world.pods = [pod("a"), pod("b", ready=False, hash_="v2", conditions=[])]
    assert (await story.look())["Ready"] == ("False", "RollingOut")
    story.world.pods = [pod("a"), pod("b", hash_="v2")]
    assert (await story.look())["Ready"] == ("False", "RollingOut")
    story.world.pods = [pod("b", hash_="v2")]
    assert (await story.look())["Ready"] == ("True", "Serving")


async def test_a_stalled_rollout_is_available_and_not_ready_and_a_rollback_mends_it() -> None:
    story = Story()
    await story.served()
    story.world.edit(**NEW_MODEL)
    story.world.newest = "v2"
    await story.look()
    story.world.pods = [pod("a"), pod("b", ready=False, hash_="v2", **CRASHED)]
    said = await story.look()
    assert said["Available"][0] == "True"
    assert said["Ready"] == said["Progressing"] == ("False", "RolloutStalled")
    assert "ModelNotFound" in story.world.condition("Ready")["message"]
    story.world.edit()
    story.world.newest, story.world.pods = "v1", [pod("a")]
    await story.look()
    assert (await story.look())["Ready"] == ("True", "Serving")


async def test_a_change_of_the_count_alone_leaves_ready_as_it_is() -> None:
    story = Story()
    await story.served()
    story.world.controlled = False
    story.world.edit(scaling={"minReplicas": 3, "maxReplicas": 4})
    assert (await story.look())["Ready"] == ("True", "Serving")
    assert story.world.deployment["spec"]["replicas"] == 3


async def test_a_change_that_rolls_nothing_leaves_ready_as_it_is() -> None:
    story = Story()
    await story.served()
    story.world.edit(slo={"itlMilliseconds": 80})
    assert (await story.look())["Ready"] == ("True", "Serving")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("spec", "ready"), [({}, "True"), (NEW_MODEL, "False")], ids=["same", "another template"])
async def test_a_paused_resource_is_ready_only_where_its_pods_are_of_this_spec(
    spec: dict[str, Any], ready: str, restarted: bool
) -> None:
    story = Story()
    await story.served()
    story.world.edit(paused=True, **spec)
    if restarted:
        story.context = operator(story.world, clock=story.clock)
    said = await story.look()
    assert (said["Ready"][0], said["Available"][0], said["Paused"][0]) == (ready, "True", "True")


async def test_trouble_that_the_controller_told_of_an_earlier_template_is_not_this_ones() -> None:
    story = Story()
    await story.served()
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    story.world.store.set_status(
        "Deployment", KEY.namespace, KEY.name, story.world.deployment["status"] | {"conditions": [late]}
    )
    story.world.controlled = False
    story.world.edit(**NEW_MODEL)
    assert (await story.look())["Ready"] == ("False", "RollingOut")
