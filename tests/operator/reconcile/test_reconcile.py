"""One pass after another over a world in books: what is written, and in which order."""

from sluice import contract
from sluice_operator.api import parse
from sluice_operator.autoscaler.values import Decision
from sluice_operator.cluster.client import Key
from sluice_operator.reconcile.apply import apply_children
from sluice_operator.reconcile.observe import observe
from sluice_operator.reconcile.reconcile import GONE, reconcile
from tests.operator.books import KEY, Clock, Engines, deployed, manifest, operator, pod, settle, world_with


async def test_the_first_pass_makes_every_child_and_the_whole_status() -> None:
    world = world_with()
    assert await reconcile(KEY, operator(world)) == 5.0
    assert world.deployment["spec"]["replicas"] == 1
    assert {c["type"] for c in world.status["conditions"]} == {
        "Ready", "Available", "Progressing", "ModelLoaded", "ScalingActive", "AdmissionActive", "MetricsAvailable", "SLOMet", "Paused",
    }  # fmt: skip
    assert world.status["url"] == "http://chat.ns.svc:8000/v1"
    assert world.status["replicasSummary"] == "0/1"
    assert [d["reason"] for d in world.status["decisions"]] == ["MinReplicas"]


async def test_the_deployment_is_written_after_what_its_pods_need_and_before_the_status() -> None:
    world = world_with()
    await reconcile(KEY, operator(world))
    order = [what.split()[1] if " " in what else what for what in world.writes]
    assert order.index("Secret") < order.index("ServiceAccount") < order.index("Deployment") < order.index("status")


async def test_a_settled_resource_is_not_written_again() -> None:
    world, clock = world_with(), Clock()
    world.pods = [pod("a")]
    context = operator(world, clock=clock)
    for _ in range(3):
        await reconcile(KEY, context)
    world.writes.clear()
    await reconcile(KEY, context)
    assert [what for what in world.writes if not what.startswith("apply Deployment")] == []


async def test_paused_writes_nothing_but_the_status() -> None:
    world = world_with()
    await settle(world)
    world.edit(paused=True, scaling={"minReplicas": 3, "maxReplicas": 4})
    world.writes.clear()
    await settle(world)
    assert {what.split()[0] for what in world.writes} <= {"status", "event"}
    assert world.condition("Paused")["status"] == "True"


async def test_external_mode_copies_the_scale_subresource() -> None:
    world = world_with(manifest(replicas=3, scaling={"mode": "External", "minReplicas": 1, "maxReplicas": 4}))
    await settle(world)
    assert world.deployment["spec"]["replicas"] == 3


async def test_advise_sets_a_first_count_and_leaves_the_field_out_ever_after() -> None:
    world = world_with(manifest(scaling={"mode": "Advise", "minReplicas": 2, "maxReplicas": 4}))
    context = operator(world)
    await reconcile(KEY, context)
    assert world.deployment["spec"]["replicas"] == 2
    await reconcile(KEY, context)
    assert "replicas" not in world.deployment["spec"]


async def test_a_smaller_count_is_preceded_by_the_order_of_leaving() -> None:
    world, clock = world_with(manifest(scaling={"minReplicas": 3, "maxReplicas": 4})), Clock()
    context = operator(world, clock=clock)
    await reconcile(KEY, context)
    world.pods = [pod("a"), pod("b"), pod("c")]
    await reconcile(KEY, context)
    world.edit(scaling={"minReplicas": 1, "maxReplicas": 2})
    world.writes.clear()
    await reconcile(KEY, context)
    costs = [what for what in world.writes if what.startswith("apply Pod ")]
    assert costs
    assert world.writes.index(costs[-1]) < world.writes.index("apply Deployment chat")
    assert world.deployment["spec"]["replicas"] < 3


async def test_limits_go_to_every_ready_engine_with_the_token() -> None:
    engines = Engines()
    world = deployed(world_with(), pod("a"), pod("b", ready=False, conditions=[]))
    await reconcile(KEY, operator(world, engines))
    assert [name for name, _, _ in engines.patched] == ["a"]


async def test_a_deleted_resource_is_forgotten() -> None:
    world = world_with()
    context = operator(world)
    await reconcile(KEY, context)
    world.store.delete(contract.KIND, KEY.namespace, KEY.name)
    assert await reconcile(KEY, context) == GONE
    assert not context.memories and not context.decisions and not context.names


async def test_names_are_known_for_as_long_as_one_of_the_namespace_is_there() -> None:
    world = world_with()
    other = manifest()
    other["metadata"]["name"] = "other"
    world.store.apply(other)
    context = operator(world)
    for key in (KEY, Key(KEY.namespace, "other")):
        await reconcile(key, context)
    world.store.delete(contract.KIND, KEY.namespace, KEY.name)
    await reconcile(KEY, context)
    assert KEY.namespace in context.names


async def test_a_resource_made_anew_under_the_same_name_starts_without_memory() -> None:
    world = world_with()
    context = operator(world)
    await reconcile(KEY, context)
    before = context.memories[KEY]
    world.store.delete(contract.KIND, KEY.namespace, KEY.name)  # and nobody looked in between
    world.store.apply(manifest())
    await reconcile(KEY, context)
    assert before.uid and context.memories[KEY].uid not in ("", before.uid)


async def test_who_leaves_next_is_annotated_beforehand_and_let_go_again() -> None:
    """A router in front can read it."""
    world = world_with()
    world.pods = [pod("a"), pod("b")]
    context, cost = operator(world), "controller.kubernetes.io/pod-deletion-cost"
    await reconcile(KEY, context)
    document = await world.get(contract.KIND, KEY.namespace, KEY.name)
    assert document is not None
    resource = parse(document)

    async def carried_out(next_scale_in_candidate: str | None) -> list[str | None]:
        """The costs of the pods after a decision that keeps two and names this one."""
        fleet, _ = await observe(
            world.resource, world, context.scraper, context.memories[KEY].seen, clock=context.clock, wall=context.wall()
        )
        decision = Decision(replicas=2, desired=2, next_scale_in_candidate=next_scale_in_candidate)
        await apply_children(KEY, document, resource, fleet, decision, context)
        return [(each["metadata"].get("annotations") or {}).get(cost) for each in world.pods]

    assert await carried_out(None) == [None, None]
    world.writes.clear()
    assert await carried_out("b") == [None, "-1"]
    assert await carried_out("b") == [None, "-1"]
    assert world.writes.count("apply Pod b") == 1
    kept, given_back = await carried_out(None)
    assert (kept, world.writes.count("apply Pod b")) == (None, 2)
    assert int(given_back or 0) >= 0
    world.pods.append(pod("c"))  # more than were asked for: the controller has not acted on the last order yet
    world.pods[0]["metadata"]["annotations"] = {cost: "-1"}
    assert (await carried_out(None))[0] == "-1"
