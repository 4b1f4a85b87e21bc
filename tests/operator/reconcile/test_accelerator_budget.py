"""The accelerator budget over several deployments that are judged at different times, and over operator restarts."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice import contract
from sluice_operator.api import parse
from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision, PodView
from sluice_operator.cluster.client import ClusterError, Key, Object
from sluice_operator.cluster.fleet import ObservedFleet, ObservedPod
from sluice_operator.cluster.pod_status import accelerators
from sluice_operator.reconcile.accelerator_budget import AcceleratorBudgets
from sluice_operator.reconcile.context import Target
from tests.operator.fake_cluster import KEY, Clock, FakeCluster, cluster_with, manifest, operator

GPU = "nvidia.com/gpu"
BUDGET = 8
NAMES = ("a", "b", "c")
NOW = 1000.0


def namespace(text: str | None, name: str = KEY.namespace) -> Object:
    annotations = {} if text is None else {contract.ANNOTATION_BUDGET: text}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}}


def resource(name: str = KEY.name, count: int = 1, **scaling: Any) -> Object:
    made = manifest(engine={"accelerator": {"count": count}}, scaling={"minReplicas": 1, "maxReplicas": 8} | scaling)
    made["metadata"]["name"] = name
    return made


def template(count: int) -> Object:
    return {"spec": {"containers": [{"name": "engine", "resources": {"limits": {GPU: str(count), "cpu": "4"}}}]}}


@dataclass
class Deployment:
    """A deployment in mode External, whose pods a test starts and ends."""

    name: str
    priority: int
    replicas: int | None = None  # of the Deployment; None: it does not exist yet
    wanted: int = 1  # spec.replicas
    running: int = 0
    draining: int = 0
    written: int | None = None  # by the operator's process

    @property
    def used(self) -> int:
        """Accelerators of its pods, one each."""
        return self.running + self.draining

    def target(self) -> Target:
        document = resource(self.name, mode="External", priority=self.priority)
        document["spec"]["replicas"] = self.wanted
        return Target(Key(KEY.namespace, self.name), document, parse(document, strict=False))

    def fleet(self) -> ObservedFleet:
        deployment = None
        if self.replicas is not None:
            deployment = {"spec": {"replicas": self.replicas, "template": template(1)}}
        views = [PodView(f"{self.name}-{n}", "ready", 0.0) for n in range(self.running)]
        views += [PodView(f"{self.name}-d{n}", "draining", 0.0) for n in range(self.draining)]
        return ObservedFleet(deployment, tuple(ObservedPod(view, accelerators={GPU: 1}) for view in views))

    def control(self) -> None:
        """The Deployment controller creates missing pods and deletes surplus ones, which drain."""
        surplus = self.running - (self.replicas or 0)
        self.running -= surplus
        self.draining += max(0, surplus)


@dataclass
class Namespace:
    """Deployments that share a budget, with one operator after the other."""

    deployments: dict[str, Deployment]
    cluster: FakeCluster = field(default_factory=FakeCluster)
    budgets: AcceleratorBudgets = field(default_factory=AcceleratorBudgets)
    decided: dict[str, Decision] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster.store.apply(namespace(f"{GPU}={BUDGET}"))
        self.context = operator(self.cluster, clock=Clock()).context
        for name in self.deployments:
            self.cluster.store.apply(resource(name))

    @property
    def used(self) -> int:
        return sum(each.used for each in self.deployments.values())

    async def judge(self, name: str) -> None:
        """One pass over one deployment."""
        deployment = self.deployments[name]
        target, fleet = deployment.target(), deployment.fleet()
        self.budgets.observe(target.key, target.resource.spec, fleet, deployment.written)
        await self.budgets.refresh(target, self.context)
        observed = replace(fleet.observed, budget=self.budgets.budget(target, self.context.clock()))
        decision, _ = decide(target.resource.spec, observed, AutoscalerState(), NOW)
        self.budgets.decided(target, fleet, decision)
        deployment.replicas = deployment.written = decision.replicas
        self.decided[name] = decision

    def restart(self) -> None:
        """A new operator, which knows nothing."""
        self.budgets = AcceleratorBudgets()
        for deployment in self.deployments.values():
            deployment.written = None

    async def settle(self) -> dict[str, int]:
        """Pass after pass until all pods are as ordered."""
        for _ in range(12):
            for name, deployment in self.deployments.items():
                await self.judge(name)
                deployment.control()
                deployment.draining = 0
        return {name: each.replicas or 0 for name, each in self.deployments.items()}


def shared(*priorities: int) -> Namespace:
    found = zip(NAMES, priorities or (0, 0, 0), strict=True)
    return Namespace({name: Deployment(name, priority) for name, priority in found})


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.sampled_from(NAMES), st.integers(0, 10)),
        st.tuples(st.just("judge"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("pass"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("control"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("end"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("restart"), st.just("a"), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=80)
@given(STEPS, st.lists(st.integers(-1, 1), min_size=3, max_size=3))
def test_pods_never_use_more_than_the_budget_in_whatever_order_deployments_are_judged(
    steps: list[tuple[str, str, int]], priorities: list[int]
) -> None:
    async def story() -> None:
        world = shared(*priorities)
        for step, name, count in steps:
            deployment = world.deployments[name]
            if step == "want":
                deployment.wanted = count
            elif step == "judge":
                await world.judge(name)
            elif step == "pass":
                await world.judge(name)
                deployment.control()
            elif step == "control":
                deployment.control()
            elif step == "end":
                deployment.draining = 0
            else:
                world.restart()
            assert world.used <= BUDGET, (step, name, count)
        before = await world.settle()
        assert world.used <= BUDGET
        assert await world.settle() == before, "shares in force move without a cause"

    asyncio.run(story())


async def test_accelerators_move_only_after_the_pods_that_held_them_have_ended() -> None:
    world = shared(0, 1, 0)
    world.deployments["a"].wanted = 8
    await world.settle()
    assert world.deployments["a"].replicas == 6, "the others have one each"
    world.deployments["b"].wanted = 5
    await world.judge("b")
    assert world.deployments["b"].replicas == 1
    await world.judge("a")
    world.deployments["a"].control()
    await world.judge("a")
    await world.judge("b")
    assert (world.deployments["a"].replicas, world.deployments["b"].replicas) == (2, 1)
    world.deployments["a"].draining = 0
    await world.judge("a")
    await world.judge("b")
    assert world.deployments["b"].replicas == 5


async def test_a_new_operator_adds_nothing_before_it_has_observed_all_deployments() -> None:
    world = shared()
    await world.settle()
    world.restart()
    world.deployments["a"].wanted = 8
    await world.judge("a")
    limit = world.decided["a"].budget
    assert world.deployments["a"].replicas == 1
    assert limit is not None
    assert "b, c" in limit.sentence
    for name in ("b", "c", "a"):
        await world.judge(name)
    assert world.deployments["a"].replicas == 6


async def test_two_deployments_judged_at_once_do_not_take_the_same_accelerators() -> None:
    world = shared()
    await world.settle()
    world.deployments["a"].wanted = world.deployments["b"].wanted = 8
    await asyncio.gather(world.judge("a"), world.judge("b"))
    ordered = [each.replicas or 0 for each in world.deployments.values()]
    assert sum(ordered) <= BUDGET


async def test_own_draining_pods_hold_their_accelerators_too() -> None:
    world = shared()
    world.deployments["a"].wanted = 6
    await world.settle()
    for wanted in (2, 6):
        world.deployments["a"].wanted = wanted
        await world.judge("a")
        world.deployments["a"].control()
    assert (world.deployments["a"].replicas, world.used) == (2, BUDGET)
    world.deployments["a"].draining = 1
    await world.judge("a")
    assert world.deployments["a"].replicas == 5


async def test_surge_pods_count_and_nobody_takes_their_accelerators() -> None:
    world = shared()
    await world.settle()
    world.deployments["b"].running = 6  # one that serves, and five of a rolling update
    await world.judge("b")
    world.deployments["a"].wanted = 8
    await world.judge("a")
    assert world.deployments["a"].replicas == 1
    world.deployments["b"].running = 1
    await world.judge("b")
    await world.judge("a")
    assert world.deployments["a"].replicas == 6


async def test_a_deployment_that_the_operator_does_not_scale_keeps_what_it_has() -> None:
    world = shared()
    await world.settle()
    off = world.deployments["b"]
    off.running = off.replicas = 4
    key = off.target().key
    world.budgets.observe(key, None, off.fleet(), None)  # its spec does not parse
    world.deployments["a"].wanted = 8
    await world.judge("a")
    assert world.deployments["a"].replicas == 3


async def test_pods_of_a_deleted_resource_hold_their_accelerators_until_they_have_ended() -> None:
    world = shared()
    world.deployments["b"].wanted = 5
    await world.settle()
    world.deployments["a"].wanted = 8
    labels = {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_INSTANCE: "b"}
    metadata = {"name": "b-1", "labels": labels, "deletionTimestamp": "2026-11-21T08:00:00Z"}
    world.cluster.pods = [{"metadata": metadata, "spec": template(5)["spec"]}]
    world.budgets.forget(Key(KEY.namespace, "b"))
    await world.judge("a")
    assert world.deployments["a"].replicas == 2
    world.cluster.pods = []
    await world.judge("a")
    assert world.deployments["a"].replicas == 7


async def test_a_new_operator_counts_pods_of_resources_that_are_deleted_already() -> None:
    world = shared()
    await world.settle()
    world.deployments["a"].wanted = 8
    labels = {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_INSTANCE: "gone"}
    metadata = {"name": "gone-1", "labels": labels, "deletionTimestamp": "2026-11-21T08:00:00Z"}
    world.cluster.pods = [{"metadata": metadata, "spec": template(5)["spec"]}]
    world.restart()
    for name in ("b", "c", "a"):
        await world.judge(name)
    assert world.deployments["a"].replicas == 1


async def test_a_resource_alone_in_its_namespace_gets_the_whole_budget() -> None:
    cluster = cluster_with(resource(minReplicas=4))
    cluster.store.apply(namespace(f"{GPU}=4"))
    reconciler = operator(cluster, clock=Clock())
    for _ in range(2):
        await reconciler.reconcile(KEY)
    assert cluster.deployment["spec"]["replicas"] == 4
    assert cluster.condition("ScalingActive")["reason"] == "Auto"


async def judged_under(chart: str, annotation: str | None) -> Decision:
    """The decision for one deployment that wants six replicas, with this budget of the chart and of the namespace."""
    alone = Namespace({"a": Deployment("a", 0, wanted=6)})
    alone.context = replace(alone.context, settings=replace(alone.context.settings, accelerator_budget=chart))
    alone.cluster.store.apply(namespace(annotation))
    await alone.judge("a")
    return alone.decided["a"]


async def test_the_chart_has_a_budget_for_each_namespace_without_an_annotation_which_replaces_it() -> None:
    assert (await judged_under(f"{GPU}=2", None)).replicas == 2
    assert (await judged_under(f"{GPU}=2", f"{GPU}=4")).replicas == 4
    assert (await judged_under(f"{GPU}=2", "amd.com/gpu=1")).replicas == 6
    assert (await judged_under("", None)).replicas == 6
    wrong = await judged_under("gpu", None)
    assert any("The chart's value acceleratorBudget: 'gpu' is not" in each.sentence for each in wrong.reasons)


async def test_a_budget_that_binds_is_in_the_decision_the_condition_and_an_event() -> None:
    cluster = cluster_with(resource(minReplicas=4))
    cluster.store.apply(namespace(f"{GPU}=3"))
    reconciler = operator(cluster, clock=Clock())
    for _ in range(2):
        await reconciler.reconcile(KEY)
    assert cluster.deployment["spec"]["replicas"] == 3
    (decision,) = cluster.status["decisions"]
    words = f"the namespace's accelerator budget ({GPU}=3) gives 3"
    assert (decision["reason"], decision["to"]) == ("AcceleratorBudget", 3)
    assert words in decision["message"]
    assert words in cluster.condition("ScalingActive")["message"]
    assert [reason for reason, _, warning in cluster.events if words in _ or warning] == [
        "ScaledUp",
        "AcceleratorBudget",
    ]


async def test_no_accelerator_at_all_is_the_cause_of_an_unready_model() -> None:
    cluster = cluster_with(resource())
    cluster.store.apply(namespace(f"{GPU}=0"))
    reconciler = operator(cluster, clock=Clock())
    for _ in range(2):
        await reconciler.reconcile(KEY)
    assert cluster.deployment["spec"]["replicas"] == 0
    ready = cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "AcceleratorBudget")
    assert "Raise the budget" in ready["message"]


async def test_a_malformed_annotation_is_named_and_changes_no_count_in_force() -> None:
    cluster, clock = cluster_with(resource(minReplicas=2)), Clock()
    cluster.store.apply(namespace(f"{GPU}=8"))
    reconciler = operator(cluster, clock=clock)
    await reconciler.reconcile(KEY)
    cluster.store.apply(namespace(f"{GPU}=eight"))
    cluster.edit(engine={"accelerator": {"count": 1}}, scaling={"minReplicas": 5, "maxReplicas": 8})
    clock.now += 31
    await reconciler.reconcile(KEY)
    assert cluster.deployment["spec"]["replicas"] == 2
    condition = cluster.condition("ScalingActive")
    assert condition["reason"] == "AcceleratorBudgetInvalid"
    assert f"The annotation {contract.ANNOTATION_BUDGET} of namespace ns: '{GPU}=eight' is not" in condition["message"]
    assert [(reason, warning) for reason, _, warning in cluster.events][-1] == ("AcceleratorBudgetInvalid", True)
    cluster.store.apply(namespace(None))
    clock.now += 31
    await reconciler.reconcile(KEY)
    assert cluster.deployment["spec"]["replicas"] == 5


async def test_a_model_without_accelerators_reads_no_namespace() -> None:
    cluster = cluster_with(resource(count=0, minReplicas=3))
    cluster.store.apply(namespace("nonsense"))
    reconciler = operator(cluster, clock=Clock())
    await reconciler.reconcile(KEY)
    assert cluster.deployment["spec"]["replicas"] == 3


async def test_an_operator_that_may_not_read_the_namespace_goes_on_without_a_budget() -> None:
    class Forbidding(FakeCluster):
        async def get(self, kind: str, namespace: str, name: str) -> Object | None:
            if kind == "Namespace":
                raise ClusterError("namespaces is forbidden", status=403)
            return await super().get(kind, namespace, name)

    cluster = Forbidding()
    cluster.store.apply(resource(minReplicas=3))
    await operator(cluster, clock=Clock()).reconcile(KEY)
    assert cluster.deployment["spec"]["replicas"] == 3


def test_only_extended_resources_of_all_containers_are_counted() -> None:
    spec = template(2)["spec"]
    spec["containers"].append({"name": "sidecar", "resources": {"limits": {GPU: "1", "hugepages-2Mi": "4Mi"}}})
    assert accelerators(spec) == {GPU: 3}
