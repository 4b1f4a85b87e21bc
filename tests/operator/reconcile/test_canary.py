"""A canary from the edit of a spec to its end: what is written, in which order, and after a restart at any write."""

from typing import Any

import pytest

from sluice import contract
from sluice_operator.api import parse
from sluice_operator.canary import CanaryState
from sluice_operator.canary.values import Phase
from sluice_operator.cluster.fleet import ObservedFleet
from sluice_operator.reconcile.children.pod_template import awaits_rollback
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.render import names
from sluice_operator.revisions.values import Choice, Record, Revision
from sluice_operator.status.facts import Facts
from tests.operator.fake_cluster import KEY, Clock, Killed, manifest, operator
from tests.operator.two_deployments import BAD_IMAGE, CountingEngines, TwoDeployments

CANARY = names.canary(KEY.name)
SETTINGS = {"weightPercent": 25, "steps": 2, "intervalSeconds": 10}
UID = "5f7d1c8e-0000-4000-8000-000000000001"


def spec(image: str | None = None, canary: Any = SETTINGS, **more: Any) -> dict[str, Any]:
    engine: dict[str, Any] = {"accelerator": {"count": 0}} | ({} if image is None else {"image": image})
    rollout = {} if canary is None else {"rollout": {"canary": canary}}
    return {"engine": engine, "scaling": {"minReplicas": 4, "maxReplicas": 8}} | rollout | more


class World:
    """A fleet of four ready pods; an operator that may be replaced; passes of five seconds."""

    def __init__(self, failing: int = 0, **more: Any) -> None:
        self.cluster, self.clock, self.engines = TwoDeployments(), Clock(), CountingEngines(failing=failing)
        resource = manifest(**spec(**more))
        resource["metadata"]["uid"] = UID
        self.cluster.store.apply(resource)
        self.restart()

    def restart(self) -> None:
        self.reconciler: Reconciler = operator(self.cluster, self.engines, self.clock)

    async def run(self, passes: int) -> None:
        for _ in range(passes):
            await self.reconciler.reconcile(KEY)
            self.clock.now += 5.0

    @property
    def phase(self) -> str:
        return str((self.cluster.status.get("canary") or {}).get("phase", ""))

    def replicas(self, name: str = KEY.name) -> int | None:
        found = self.cluster.of(name)
        return None if found is None else int(found["spec"]["replicas"])


async def fleet(failing: int = 0, **more: Any) -> World:
    world = World(failing, **more)
    await world.run(3)
    return world


async def test_a_good_canary_takes_its_share_and_is_promoted() -> None:
    world = await fleet()
    assert world.cluster.weight() is None
    world.cluster.edit(**spec("engine:2"))
    await world.run(1)
    assert (world.cluster.image(), world.cluster.image(CANARY)) == ("engine:1", "engine:2")
    assert (world.replicas(), world.replicas(CANARY), world.cluster.weight()) == (4, 1, 0)
    await world.run(1)
    assert (world.replicas(), world.replicas(CANARY), world.cluster.weight()) == (3, 1, 25)
    assert world.cluster.condition("Ready")["reason"] == "CanaryProgressing"
    assert world.cluster.status["canary"]["weightPercent"] == 25
    await world.run(3)
    assert (world.replicas(CANARY), world.cluster.weight()) == (2, 50)
    await world.run(12)
    assert world.phase == "Promoted"
    assert (world.cluster.image(), world.replicas()) == ("engine:2", 4)
    assert (world.cluster.of(CANARY), world.cluster.weight()) == (None, None)
    assert world.cluster.condition("Ready")["reason"] == "Serving"
    reasons = [reason for reason, _, _ in world.cluster.events if reason.startswith("Canary")]
    assert reasons == [
        "CanaryStarted", "CanaryServes", "CanaryAdvanced", "CanaryServes", "CanaryPromoting", "CanaryPromoted",
    ]  # fmt: skip
    world.cluster.writes.clear()
    await world.run(3)
    assert not [what for what in world.cluster.writes if CANARY in what]


async def test_the_service_is_written_before_the_pods_that_it_marks() -> None:
    world = await fleet()
    world.cluster.edit(**spec("engine:2"))
    world.cluster.writes.clear()
    await world.run(1)
    order = world.cluster.writes
    stored = order.index(f"apply ConfigMap {names.estimates(KEY.name)}")
    assert stored < order.index(f"apply Service {CANARY}") < order.index(f"apply Deployment {CANARY}")


async def test_errors_roll_it_back_with_the_numbers() -> None:
    world = await fleet(failing=2)
    world.cluster.edit(**spec("engine:2"))
    await world.run(8)
    assert world.phase == "RolledBack"
    assert (world.cluster.image(), world.replicas(), world.cluster.of(CANARY)) == ("engine:1", 4, None)
    ready = world.cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "CanaryRolledBack")
    assert "ErrorRate: 4 of 20 requests of the canary ended with an error (20.0 %)" in ready["message"]
    assert world.cluster.condition("Available")["status"] == "True"
    assert ("CanaryRolledBack", ready["message"], True) in world.cluster.events


async def test_the_weight_goes_before_the_pods_and_the_service_after_them() -> None:
    world = await fleet(failing=10)
    world.cluster.edit(**spec("engine:2"))
    await world.run(2)
    world.cluster.writes.clear()
    await world.run(6)
    order = world.cluster.writes
    gone = order.index(f"delete Deployment {CANARY}")
    assert order[:gone].count(f"apply Service {CANARY}") >= 1
    assert gone < order.index(f"delete Service {CANARY}")


async def test_pods_that_go_late_keep_the_service_that_takes_their_requests_away() -> None:
    world = await fleet(failing=10)
    world.cluster.edit(**spec("engine:2"))
    await world.run(2)
    world.cluster.stays = True
    await world.run(6)
    assert (world.phase, world.replicas(CANARY), world.cluster.weight()) == ("RolledBack", 0, 0)
    world.cluster.stays = False
    await world.run(2)
    assert (world.cluster.of(CANARY), world.cluster.weight()) == (None, None)


async def test_a_bad_image_is_rolled_back_without_a_request_and_a_fixed_one_is_tried() -> None:
    world = await fleet()
    world.cluster.edit(**spec(BAD_IMAGE))
    weights = set()
    for _ in range(16):
        await world.run(1)
        weights.add(world.cluster.weight())
    assert weights == {0, None}
    assert (world.phase, world.cluster.status["canary"]["reason"]) == ("RolledBack", "ImagePullFailed")
    assert (world.cluster.image(), world.replicas()) == ("engine:1", 4)
    await world.run(100)
    assert world.cluster.image() == "engine:1"
    world.cluster.edit(**spec("engine:2"))
    await world.run(20)
    assert (world.phase, world.cluster.image()) == ("Promoted", "engine:2")


async def test_a_promotion_that_stalls_goes_back_at_once_and_is_not_tried_again() -> None:
    rollout = {"canary": SETTINGS, "rollback": "Auto", "progressDeadlineSeconds": 10}
    world = await fleet()
    world.cluster.edit(**spec("engine:2", rollout=rollout))
    for _ in range(20):
        if world.phase != "Promoting":
            await world.run(1)
    assert (world.phase, world.cluster.image()) == ("Promoting", "engine:2")
    world.cluster.stalled = (KEY.name, "engine:2")
    images = []
    for _ in range(20):
        await world.run(1)
        images.append(world.cluster.image(CANARY) if world.cluster.of(CANARY) else "")
    assert (world.cluster.image(), world.replicas(), world.phase) == ("engine:1", 4, "")
    assert world.cluster.condition("Ready")["reason"] == "RolledBack"
    assert "engine:1" not in images and images[-1] == ""  # the way back is no canary


@pytest.mark.parametrize("phase", ["", "Progressing", "Promoting", "RolledBack"])
def test_crashed_pods_wait_for_a_rollback_only_where_their_own_revision_may_be_rolled_back(phase: Phase) -> None:
    """While a canary holds the stable pods, these are of the revision to go back to."""
    applied, good = Revision("new", "2", {}), Revision("old", "1", {}, ready=True)
    choice = Choice(Record("engine:1", applied, good=good), {})
    asked = parse(manifest(**spec("engine:2", rollout={"canary": SETTINGS, "rollback": "Auto"})), strict=False).spec
    facts = Facts(generation=1, spec=asked, choice=choice, canary=CanaryState(phase), fleet=ObservedFleet({}, ()))
    assert awaits_rollback(facts) == (phase in ("", "Promoting"))


async def test_a_spec_that_is_changed_back_ends_the_trial() -> None:
    world = await fleet()
    world.cluster.edit(**spec("engine:2"))
    await world.run(3)
    world.cluster.edit(**spec())
    await world.run(3)
    assert (world.phase, world.cluster.of(CANARY), world.cluster.weight()) == ("", None, None)
    assert (world.cluster.image(), world.replicas()) == ("engine:1", 4)
    assert world.cluster.condition("Ready")["reason"] == "Serving"


async def test_without_the_setting_the_change_applies_and_nothing_of_a_canary_is_left() -> None:
    world = await fleet()
    world.cluster.edit(**spec("engine:2"))
    await world.run(3)
    world.cluster.edit(**spec("engine:2", canary=None))
    await world.run(3)
    assert (world.cluster.image(), world.replicas()) == ("engine:2", 4)
    assert (world.cluster.of(CANARY), world.cluster.weight()) == (None, None)


async def test_the_law_scales_both_revisions_together() -> None:
    slow, world = SETTINGS | {"intervalSeconds": 600}, await fleet()
    world.cluster.edit(**spec("engine:2", canary=slow))
    await world.run(2)
    world.cluster.edit(**spec("engine:2", canary=slow, scaling={"minReplicas": 8, "maxReplicas": 8}))
    await world.run(2)
    assert (world.replicas(), world.replicas(CANARY)) == (6, 2)
    assert world.cluster.status["desiredReplicas"] == 8
    assert "OtherWriter" not in {reason for reason, _, _ in world.cluster.events}


@pytest.mark.parametrize("mode", ["Off", "Advise"])
async def test_where_the_operator_does_not_own_the_count_the_canarys_pods_come_on_top(mode: str) -> None:
    scaling = {"mode": mode, "minReplicas": 4, "maxReplicas": 8}
    world = await fleet(scaling=scaling)
    world.cluster.edit(**spec("engine:2", scaling=scaling))
    await world.run(2)
    assert contract.ANNOTATION_SHARED not in world.cluster.deployment["metadata"]["annotations"]
    assert world.replicas(CANARY) == 1
    assert world.cluster.weight() == 25


def final(world: World) -> tuple[object, ...]:
    canary = world.cluster.status.get("canary") or {}
    return (
        world.cluster.image(), world.replicas(), world.cluster.of(CANARY), world.cluster.weight(),
        canary.get("phase"), canary.get("reason"), world.cluster.condition("Ready")["reason"],
    )  # fmt: skip


@pytest.mark.parametrize(("image", "failing"), [("engine:2", 0), ("engine:2", 3), (BAD_IMAGE, 0)])
async def test_an_operator_killed_after_any_write_ends_where_it_would_have_ended(image: str, failing: int) -> None:
    whole = await fleet(failing)
    whole.cluster.writes.clear()
    whole.cluster.edit(**spec(image))
    await whole.run(24)
    firsts = {what: n for n, what in reversed(list(enumerate(whole.cluster.writes, 1)))}  # one kill per kind of write
    for count in firsts.values():
        world = await fleet(failing)
        world.cluster.writes.clear()
        world.cluster.edit(**spec(image))
        world.cluster.kill_after = count
        with pytest.raises(Killed):
            await world.run(24)
        world.cluster.kill_after = None
        world.restart()
        await world.run(24)
        assert final(world) == final(whole), f"killed after write {count}: {whole.cluster.writes[count - 1]}"
