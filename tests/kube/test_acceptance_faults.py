"""Rows of the acceptance table on faults, on a real API server: the name of a test shows its row."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice import contract
from sluice_kube.errors import ClusterError
from sluice_operator.cluster.client import Object
from sluice_operator.runtime import process
from tests.kube.api_server import ApiServer
from tests.kube.helm import apply_crd, remove_crd, wait_until
from tests.kube.specs import BASE, EDITED
from tests.kube.world import World, in_worlds

DISTURBED_PASSES = 12  # over each of two specs; about half of them fail
RBAC = "/apis/rbac.authorization.k8s.io/v1"
USER = "operator-of-the-test"


def failing(seed: int) -> Callable[[str], None]:
    """Fails one request in twelve before it is sent and as many after it was carried out, as an overloaded server does."""
    draw = random.Random(seed)

    def disturb(what: str) -> None:
        if draw.random() < 1 / 12:
            status = draw.choice((429, 500, 503, 504, 0))  # 0: no answer in time
            raise ClusterError(f"{what}: {status} by the test", status=status)

    return disturb


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_row_an_api_server_that_answers_429_and_500_and_loses_answers_changes_no_end(crd: ApiServer, seed: int) -> None:
    async def story(make: Callable[[], World]) -> None:
        undisturbed, world = make(), make()
        await undisturbed.create(EDITED)
        await undisturbed.settle()
        await world.create(BASE)
        operator, failures = world.operator(), 0
        world.client.disturb = failing(seed)
        for number in range(2 * DISTURBED_PASSES):
            if number == DISTURBED_PASSES:
                await world.replace(EDITED)
            try:
                await world.settle(operator, 1)
            except ClusterError:
                failures += 1
        world.client.disturb = None
        await world.settle(operator)
        assert await world.state() == await undisturbed.state()
        assert failures > 0

    in_worlds(crd, story)


ALL: Object = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
READS = ["get", "list", "watch"]
# Of the kinds in the API group apps, these rules lack one right: to patch Deployments.
NO_PATCH_OF_DEPLOYMENTS: list[Object] = [
    ALL | {"apiGroups": ["", "sluice.dev", "policy", "networking.k8s.io"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": [*READS, "create", "delete"]},
    {"apiGroups": ["apps"], "resources": ["replicasets"], "verbs": READS},
]


async def allow(world: World, rules: Sequence[Object] = (ALL,)) -> None:
    """Bind the user to these rules in the world's namespace, by default to everything."""
    where, names = f"{RBAC}/namespaces/{world.namespace}", {"metadata": {"name": "operator"}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]
    if world.server.get(f"{where}/roles/operator") is None:
        await world.send("POST", f"{where}/roles", names | {"rules": list(rules)})
    else:
        await world.send("PUT", f"{where}/roles/operator", names | {"rules": list(rules)})
    if world.server.get(f"{where}/rolebindings/operator") is None:
        await world.send("POST", f"{where}/rolebindings", names | {"roleRef": role, "subjects": subjects})


def test_row_rbac_taken_away_and_given_back_is_an_error_and_no_crash(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await allow(world)
        world.act_as(USER)
        operator = await world.settle()
        await world.send("DELETE", f"{RBAC}/namespaces/{world.namespace}/rolebindings/operator")
        wait_until(lambda: not may_patch_deployments(world))
        await world.replace(BASE | {"rollout": {"maxSurge": 2}})  # a pass without a change makes no request
        with pytest.raises(ClusterError, match="forbidden") as refused:
            await world.settle(operator)
        assert refused.value.status == 403
        await allow(world)
        await world.replace(BASE | {"rollout": {"maxSurge": 3}})
        await world.settle(operator)
        rolling = (await world.child("Deployment", "chat"))["spec"]["strategy"]["rollingUpdate"]
        assert rolling["maxSurge"] == 3

    in_worlds(crd, story)


def may_patch_deployments(world: World) -> bool:
    """What the API server's authorizer says of the user, whose roles it reads with a delay."""
    attributes = {"namespace": world.namespace, "verb": "patch", "group": "apps", "resource": "deployments"}
    review = {"spec": {"user": USER, "resourceAttributes": attributes}}
    answer = world.server.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def test_row_a_right_taken_away_is_a_condition_that_names_it_until_it_is_given_back(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await allow(world)
        world.act_as(USER)
        operator = await world.settle()
        before = await world.state()
        await allow(world, NO_PATCH_OF_DEPLOYMENTS)
        wait_until(lambda: not may_patch_deployments(world))
        await world.replace(BASE | {"rollout": {"maxSurge": 3}})
        with pytest.raises(ClusterError) as refused:
            await world.settle(operator)
        assert refused.value.status == 403
        assert await world.state() == before
        ready = await world.condition("Ready")
        assert (ready["status"], ready["reason"]) == ("False", "WriteRefused")
        assert f'User "{USER}" cannot patch resource "deployments" in API group "apps"' in ready["message"]
        assert "Grant the operator this permission" in ready["message"] and "the operator retries" in ready["message"]
        await allow(world)
        wait_until(lambda: may_patch_deployments(world))
        await world.settle(operator)
        assert (await world.condition("Ready"))["reason"] != "WriteRefused"
        rolling = (await world.child("Deployment", "chat"))["spec"]["strategy"]["rollingUpdate"]
        assert rolling["maxSurge"] == 3

    in_worlds(crd, story)


# Everything but the status of the resource.
NO_STATUS: list[Object] = [
    ALL | {"apiGroups": ["", "apps", "policy", "networking.k8s.io"]},
    {"apiGroups": ["sluice.dev"], "resources": ["llmdeployments"], "verbs": READS},
]


def may_patch_status(world: World) -> bool:
    """What the API server's authorizer says of the user."""
    attributes = {"namespace": world.namespace, "verb": "patch", "group": "sluice.dev"}
    attributes |= {"resource": "llmdeployments", "subresource": "status"}
    review = {"spec": {"user": USER, "resourceAttributes": attributes}}
    answer = world.server.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def test_row_without_the_right_to_the_status_the_children_follow_the_spec_and_the_status_comes_back(
    crd: ApiServer,
) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await allow(world)
        world.act_as(USER)
        operator = await world.settle()
        await allow(world, NO_STATUS)
        wait_until(lambda: not may_patch_status(world))
        await world.replace(BASE | {"rollout": {"maxSurge": 3}})
        with pytest.raises(ClusterError, match='cannot patch resource "llmdeployments/status"') as refused:
            await world.settle(operator)
        assert refused.value.status == 403
        rolling = (await world.child("Deployment", "chat"))["spec"]["strategy"]["rollingUpdate"]
        assert rolling["maxSurge"] == 3
        assert (await world.condition("Ready"))["observedGeneration"] == 1
        await allow(world)
        wait_until(lambda: may_patch_status(world))
        await world.settle(operator)
        assert (await world.condition("Ready"))["observedGeneration"] == 2

    in_worlds(crd, story)


def test_row_with_the_crd_missing_at_start_the_operator_waits_and_says_so(
    api_server: ApiServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_crd(api_server)

    async def story(make: Callable[[], World]) -> None:
        world, pauses = make(), []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 2:
                apply_crd(api_server)

        monkeypatch.setattr(asyncio, "sleep", pause)
        await process._wait_for_crd(world.client, world.operator().context.settings)
        assert len(pauses) >= 2

    try:
        with caplog.at_level(logging.WARNING):
            in_worlds(api_server, story)
    finally:
        remove_crd(api_server)
    waiting = [each.message for each in caplog.records if "is not installed" in each.message]
    assert len(waiting) == 1
    assert f"{contract.PLURAL}.{contract.GROUP}" in waiting[0] and "sluice crds" in waiting[0]
