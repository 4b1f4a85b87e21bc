"""An upgrade of the operator: what its new image, its settings and its renderer do to running fleets."""

from dataclasses import replace
from typing import Any

import pytest

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.revisions.values import image_of
from sluice_operator.settings import Settings
from tests.operator.fake_cluster import KEY, Clock, FakeCluster, Killed, cluster_with, manifest, operator, pod

NEWER: dict[str, Settings] = {
    "another image": Settings(engine_image="engine:2", hub_endpoint=""),
    "other user ids": Settings(engine_image="engine:1", hub_endpoint="", pod_ids="Cluster"),
}
ALWAYS = {"upgradePolicy": "Window", "upgradeWindow": {"cron": "* * * * *", "durationSeconds": 3600}}
NEVER = {"upgradePolicy": "Window", "upgradeWindow": {"cron": "* * * * *", "timezone": "Mars/Olympus"}}
OTHER_MODEL = {"uri": "pvc://models/other"}


class Fleet:
    """One LLMDeployment that serves, and the operators that follow each other."""

    def __init__(self, rollout: dict[str, Any] | None = None, **spec: Any) -> None:
        self.spec = {"rollout": rollout or {}} | spec
        resource = manifest(**self.spec)
        resource["metadata"]["uid"] = "5f7d1c8e-0000-4000-8000-000000000001"  # of which the Secret's name derives
        self.cluster: FakeCluster = cluster_with(resource)
        self.clock = Clock()
        self.reconciler = operator(self.cluster, clock=self.clock)

    def upgrade(self, settings: Settings) -> None:
        """A newer operator takes over."""
        context = operator(self.cluster, clock=self.clock).context
        self.reconciler = Reconciler(replace(context, settings=settings))

    async def look(self, passes: int = 1) -> None:
        for _ in range(passes):
            self.clock.now += 5
            await self.reconciler.reconcile(KEY)

    async def serve(self) -> "Fleet":
        await self.look()
        self.cluster.pods = [pod("a")]
        await self.look(2)
        return self

    @property
    def template(self) -> Object:
        found: Object = self.cluster.deployment["spec"]["template"]
        return found

    @property
    def offer(self) -> tuple[str, str, str]:
        found = self.cluster.condition("UpgradeAvailable")
        return found["status"], found["reason"], found["message"]


@pytest.mark.parametrize("settings", NEWER.values(), ids=NEWER)
@pytest.mark.parametrize("rollout", [{}, {"upgradePolicy": "Manual"}, NEVER], ids=["OnChange", "Manual", "no window"])
async def test_an_upgraded_operator_moves_no_pod_and_writes_no_deployment(
    settings: Settings, rollout: dict[str, Any]
) -> None:
    fleet = await Fleet(rollout).serve()
    before = fleet.cluster.deployment
    fleet.upgrade(settings)
    await fleet.look(3)
    assert fleet.cluster.deployment["metadata"] == before["metadata"]
    assert fleet.template == before["spec"]["template"]
    assert fleet.offer[0] == "True"
    assert fleet.cluster.condition("Ready")["status"] == "True"
    assert fleet.cluster.status["image"] == "engine:1"


async def test_the_condition_names_the_image_and_a_command_that_takes_it() -> None:
    fleet = await Fleet().serve()
    assert fleet.offer[:2] == ("False", "UpToDate")
    fleet.upgrade(NEWER["another image"])
    await fleet.look()
    status, reason, message = fleet.offer
    assert (status, reason) == ("True", "NewEngineImage")
    assert "engine:2" in message and "with the next change of spec.model" in message
    annotation = message.rpartition("kubectl annotate llmd chat ")[2].removesuffix(" --overwrite")
    name, _, value = annotation.partition("=")
    resource = fleet.cluster.resource
    fleet.cluster.store.apply(
        manifest(**fleet.spec) | {"metadata": resource["metadata"] | {"annotations": {name: value}}}
    )
    await fleet.look(2)
    assert (image_of(fleet.template), fleet.offer[1]) == ("engine:2", "UpToDate")
    assert fleet.cluster.status["image"] == "engine:2"


@pytest.mark.parametrize(("policy", "image"), [("OnChange", "engine:2"), ("Manual", "engine:1")])
async def test_a_change_of_the_spec_takes_the_image_by_policy(policy: str, image: str) -> None:
    fleet = await Fleet({"upgradePolicy": policy}).serve()
    fleet.upgrade(NEWER["another image"])
    await fleet.look()
    fleet.cluster.edit(**fleet.spec, scaling={"minReplicas": 2, "maxReplicas": 4}, slo={"itlMilliseconds": 80})
    await fleet.look()
    assert image_of(fleet.template) == "engine:1"  # no pod depends on this change
    fleet.cluster.edit(**fleet.spec, model=OTHER_MODEL)
    await fleet.look()
    assert image_of(fleet.template) == image
    fleet.cluster.edit(**fleet.spec, model=OTHER_MODEL, engine={"accelerator": {"count": 0}, "image": "mine:1"})
    await fleet.look()
    assert image_of(fleet.template) == "mine:1"


async def test_an_open_window_moves_the_fleet() -> None:
    fleet = await Fleet(ALWAYS).serve()
    fleet.upgrade(NEWER["another image"])
    await fleet.look()
    assert image_of(fleet.template) == "engine:2"
    told = [(message, warning) for reason, message, warning in fleet.cluster.events if reason == "Upgrading"]
    assert told == [("The pods move to the engine image engine:2.", False)]


async def test_windows_move_one_fleet_after_the_other_also_over_a_restart() -> None:
    first, second = Fleet(ALWAYS), Fleet(ALWAYS)
    for each in (first, second):
        await each.serve()
    neighbour = first.cluster.deployment
    neighbour["metadata"] |= {
        "name": "neighbour",
        "labels": neighbour["metadata"]["labels"] | {contract.LABEL_INSTANCE: "x"},
    }
    first.upgrade(NEWER["another image"])
    first.cluster.pods = []
    await first.look()
    moved = first.cluster.deployment
    moved["metadata"] |= {k: neighbour["metadata"][k] for k in ("name", "labels")}
    second.cluster.store.insert(moved, second.cluster.resource)
    second.upgrade(NEWER["another image"])
    await second.look(2)
    assert image_of(second.template) == "engine:1"
    second.cluster.store.delete("Deployment", KEY.namespace, "neighbour")
    await second.look()
    assert image_of(second.template) == "engine:2"


async def test_a_first_fleet_that_never_served_takes_the_newer_image_at_once() -> None:
    fleet = Fleet()
    await fleet.look(2)
    fleet.upgrade(NEWER["another image"])
    await fleet.look()
    assert image_of(fleet.template) == "engine:2"


async def test_a_deployment_of_an_operator_without_records_is_left_as_it_is() -> None:
    fleet = await Fleet().serve()
    old = fleet.cluster.deployment
    del old["metadata"]["annotations"][contract.ANNOTATION_REVISIONS]
    fleet.cluster.store.delete("Deployment", KEY.namespace, KEY.name)
    fleet.cluster.store.insert(old, fleet.cluster.resource)
    fleet.upgrade(NEWER["another image"])
    await fleet.look(2)
    assert fleet.template == old["spec"]["template"]
    assert fleet.offer[1] == "NewEngineImage"


async def test_what_others_write_into_a_kept_template_is_undone() -> None:
    fleet = await Fleet().serve()
    kept = fleet.template
    fleet.upgrade(NEWER["another image"])
    await fleet.look()
    drifted = fleet.cluster.deployment
    drifted["spec"]["template"]["spec"]["containers"] = [{"name": "engine", "image": "evil:1"}]
    drifted["apiVersion"], drifted["kind"] = "apps/v1", "Deployment"
    fleet.cluster.store.apply(drifted)
    await fleet.look()
    assert fleet.template == kept


async def test_an_operator_killed_after_any_write_of_an_upgrade_moves_the_fleet_all_the_same() -> None:
    async def moving(kill_after: int | None) -> Fleet:
        fleet = await Fleet(ALWAYS).serve()
        fleet.upgrade(NEWER["another image"])
        fleet.cluster.writes.clear()
        fleet.cluster.kill_after = kill_after
        return fleet

    undisturbed = await moving(None)
    await undisturbed.look(3)
    for k in range(1, len(undisturbed.cluster.writes) + 1):
        fleet = await moving(k)
        with pytest.raises(Killed):
            await fleet.look(3)
        fleet.cluster.kill_after = None
        fleet.upgrade(NEWER["another image"])
        await fleet.look(3)
        assert fleet.template == undisturbed.template, k
        assert fleet.offer[:2] == ("False", "UpToDate")
