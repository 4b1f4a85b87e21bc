"""A spec whose pods never start, over passes and restarts of the operator; and the same killed after every write."""

from typing import Any

import pytest

from tests.operator.fake_cluster import KEY, Clock, FakeCluster, Killed, cluster_with, manifest, operator, pod
from tests.operator.reconcile.test_killed import bare
from tests.operator.reconcile.test_problems import CRASHED

LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
BAD: dict[str, Any] = {"model": {"uri": "pvc://models/other"}}
PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
NO_GPU = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
FAILING: dict[str, dict[str, Any]] = {
    "EngineCrashed": {"containerStatuses": [{"name": "engine", "state": {"terminated": {"exitCode": 1}}}]},
    "ModelNotFound": CRASHED,
    "ImagePullFailed": {"containerStatuses": [{"name": "engine", "image": "engine:bad", "state": PULL}]},
    "Unschedulable": {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_GPU}]
    },
    "ProgressDeadlineExceeded": {"containerStatuses": [{"name": "engine", "state": {"running": {}}}]},
}


class Story:
    """One resource of this policy; pods of the model `tiny` have the hash v1, others v2."""

    def __init__(self, rollback: str, **rollout: Any) -> None:
        self.rollout = {"rollback": rollback, **rollout}
        resource = manifest(rollout=self.rollout)
        resource["metadata"]["uid"] = "5f7d1c8e-0000-4000-8000-000000000001"
        self.cluster: FakeCluster = cluster_with(resource)
        self.clock = Clock()
        self.restart()

    def restart(self) -> None:
        self.reconciler = operator(self.cluster, clock=self.clock)

    def edit(self, **spec: Any) -> None:
        self.cluster.edit(rollout=self.rollout, **spec)

    async def look(self, passes: int = 1) -> None:
        for _ in range(passes):
            self.clock.now += 5
            self.cluster.newest = "v1" if not self.cluster.deployment or self.model.endswith("/tiny") else "v2"
            await self.reconciler.reconcile(KEY)

    def of(self, kind: str) -> tuple[str, str]:
        found = self.cluster.condition(kind)
        return found["status"], found["reason"]

    @property
    def model(self) -> str:
        """The model that the Deployment's pods serve."""
        return str(self.cluster.deployment["spec"]["template"]["spec"]["containers"][0]["args"][1])

    async def serve(self) -> None:
        await self.look()
        self.cluster.pods = [pod("a")]
        await self.look(2)

    def fail(self, reason: str) -> None:
        """The pods of the new template show this problem, and the Deployment its timeout."""
        new = pod("b", ready=False, hash_="v2", **FAILING[reason])
        if reason == "Unschedulable":
            del new["spec"]["nodeName"]
        self.cluster.pods = [pod("a"), new]
        status = self.cluster.deployment.get("status") or {}
        self.cluster.store.set_status("Deployment", KEY.namespace, KEY.name, status | {"conditions": [LATE]})
        self.clock.now += 600

    def recover(self) -> None:
        """The Deployment controller has gone back to the old ReplicaSet."""
        self.cluster.pods = [pod("a")]
        self.cluster.store.set_status("Deployment", KEY.namespace, KEY.name, {})


@pytest.mark.parametrize("reason", FAILING)
@pytest.mark.parametrize("restarted", [False, True])
async def test_auto_goes_back_says_why_and_stays_until_the_spec_changes(reason: str, restarted: bool) -> None:
    story = Story("Auto")
    await story.serve()
    good = story.cluster.deployment["spec"]["template"]
    story.edit(**BAD)
    await story.look()
    assert story.model.endswith("/other")
    story.fail(reason)
    if restarted:
        story.restart()
    await story.look()
    assert story.cluster.deployment["spec"]["template"] == good
    story.recover()
    if restarted:
        story.restart()
    await story.look(3)
    assert story.cluster.deployment["spec"]["template"] == good
    assert story.of("Ready") == story.of("Progressing") == story.of("ModelLoaded") == ("False", "RolledBack")
    assert story.of("Available")[0] == "True"
    assert f"{reason}:" in story.cluster.condition("Ready")["message"]
    assert ("RolledBack", True) in {(event, warning) for event, _, warning in story.cluster.events}
    story.edit(model={"uri": "pvc://models/third"})
    await story.look()
    assert story.model.endswith("/third")


async def test_scaling_and_targets_of_the_new_spec_apply_to_pods_that_went_back() -> None:
    story = Story("Auto")
    await story.serve()
    story.edit(**BAD)
    await story.look()
    story.fail("ImagePullFailed")
    await story.look()
    story.recover()
    story.edit(**BAD, scaling={"minReplicas": 3, "maxReplicas": 4}, slo={"itlMilliseconds": 80})
    await story.look()
    assert (story.cluster.deployment["spec"]["replicas"], story.of("Ready")[1]) == (3, "RolledBack")
    targets = story.cluster.store.get("ConfigMap", "ns", "chat-targets") or {}
    assert '"itl_target_ms": 80' in str(targets["data"])


async def test_manual_keeps_the_failed_spec_and_says_how_to_go_back() -> None:
    story = Story("Manual")
    await story.serve()
    good = story.cluster.deployment["spec"]["template"]
    story.edit(**BAD)
    await story.look()
    story.fail("ImagePullFailed")
    await story.look(2)
    assert story.model.endswith("/other")
    assert story.of("Ready") == story.of("Progressing") == ("False", "RolloutStalled")
    message = story.cluster.condition("Ready")["message"]
    assert "apply the earlier spec again, or set spec.rollout.rollback to Auto" in message
    story.edit()
    await story.look()
    assert story.cluster.deployment["spec"]["template"] == good


async def test_auto_set_afterwards_goes_back_too() -> None:
    story = Story("Manual")
    await story.serve()
    story.edit(**BAD)
    await story.look()
    story.fail("ImagePullFailed")
    await story.look()
    story.rollout = {"rollback": "Auto"}
    story.edit(**BAD)
    await story.look()
    assert story.model.endswith("/tiny")


async def test_before_the_deadline_auto_waits_and_says_so() -> None:
    story = Story("Auto")
    await story.serve()
    story.edit(**BAD)
    await story.look()
    story.cluster.pods = [pod("a"), pod("b", ready=False, hash_="v2", **FAILING["ImagePullFailed"])]
    await story.look(5)
    assert story.model.endswith("/other")
    assert story.of("Ready") == ("False", "RolloutStalled")
    assert "once no pod has become ready for 600 s" in story.cluster.condition("Ready")["message"]


@pytest.mark.parametrize(("rollback", "deleted"), [("Auto", False), ("Manual", True)])
async def test_a_crashed_pod_is_not_replaced_while_the_deadline_of_a_rollback_runs(
    rollback: str, deleted: bool
) -> None:
    story = Story(rollback, maxSurge=0, maxUnavailable=1)
    await story.serve()
    story.edit(**BAD)
    await story.look()
    story.cluster.pods = [pod("b", ready=False, hash_="v2", **CRASHED)]
    await story.look(30)
    assert ("delete Pod b" in story.cluster.writes) == deleted
    assert story.of("Available")[0] == "False"
    story.fail("ModelNotFound")
    story.cluster.pods = story.cluster.pods[1:]
    await story.look()
    assert story.model.endswith("/other" if deleted else "/tiny")


async def test_a_pod_that_waits_for_an_accelerator_that_the_old_pods_hold_is_told_about_max_surge() -> None:
    gpu = {"engine": {"accelerator": {"count": 1}}}
    story = Story("Manual")
    story.edit(**gpu)
    await story.serve()
    story.edit(**gpu, **BAD)
    await story.look()
    story.fail("Unschedulable")
    await story.look()
    message = story.cluster.condition("Ready")["message"]
    assert "set spec.rollout.maxSurge to 0 and spec.rollout.maxUnavailable to 1" in message
    assert "beside the 1 of the earlier pods" in message
    story.rollout |= {"maxSurge": 0, "maxUnavailable": 1}
    story.edit(**gpu, **BAD)
    await story.look()
    assert story.cluster.deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert "maxSurge" not in story.cluster.condition("Ready")["message"]


async def test_a_spec_flipped_100_times_ends_with_the_last_one_and_the_pods_it_had() -> None:
    story = Story("Auto")
    await story.serve()
    good = story.cluster.deployment["spec"]["template"]
    for _ in range(50):
        story.edit(**BAD)
        await story.look()
        story.edit()
        await story.look()
    await story.look()
    assert story.cluster.deployment["spec"]["template"] == good
    assert story.of("Ready") == ("True", "Serving")


async def _rollback(story: Story) -> None:
    """From the bad spec until the resource has settled. Each step may be repeated after a kill."""
    await story.look()
    story.fail("ImagePullFailed")
    await story.look()
    story.recover()
    await story.look(3)


async def test_a_process_killed_after_any_write_of_a_rollback_is_followed_by_the_same_state() -> None:
    undisturbed = Story("Auto")
    await undisturbed.serve()
    undisturbed.edit(**BAD)
    undisturbed.cluster.writes.clear()
    await _rollback(undisturbed)
    writes, wanted = list(undisturbed.cluster.writes), _without_times(undisturbed.cluster)
    assert undisturbed.of("Ready") == ("False", "RolledBack")
    for k in range(1, len(writes) + 1):
        story = Story("Auto")
        await story.serve()
        story.edit(**BAD)
        story.cluster.writes.clear()
        story.cluster.kill_after = k
        with pytest.raises(Killed):
            await _rollback(story)
        story.cluster.kill_after = None
        story.restart()
        if story.model.endswith("/other") or "RolledBack" not in str(story.cluster.status):
            await story.look()
        if story.model.endswith("/other"):
            story.fail("ImagePullFailed")
            await story.look()
        story.recover()
        await story.look(3)
        assert _without_times(story.cluster) == wanted, f"killed after write {k}: {writes[k - 1]}"


def _without_times(cluster: FakeCluster) -> dict[str, Any]:
    found = bare(cluster)
    for each in found["Deployment"]:
        each["metadata"]["annotations"].pop("sluice.dev/revisions")  # it has the times of its revisions
        each["metadata"].pop("generation")
    return found
