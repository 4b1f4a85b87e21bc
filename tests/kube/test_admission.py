"""Writes that admission refuses on a real API server: webhooks, policies, quotas and a namespace that is being deleted."""

import uuid
from collections.abc import Callable
from typing import Any, Final
from urllib.error import HTTPError

import pytest

from sluice_operator.cluster.client import ClusterError, Object
from sluice_operator.cluster.kinds import path
from tests.kube.api_server import ApiServer
from tests.kube.helm import wait_until
from tests.kube.specs import BASE
from tests.kube.world import World, in_worlds

ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
DEPLOYMENTS: Final[Object] = {
    "apiGroups": ["apps"],
    "apiVersions": ["v1"],
    "resources": ["deployments"],
    "operations": ["*"],
}
CHANGED: Final = BASE | {"rollout": {"maxSurge": 2}}


def selector(world: World) -> Object:
    return {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}


async def webhook(world: World) -> str:
    """A webhook for Deployments whose service does not answer."""
    name = f"{world.namespace}.example.com"
    hook = {
        "name": name, "rules": [DEPLOYMENTS], "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"], "namespaceSelector": selector(world), "clientConfig": {"url": "https://127.0.0.1:1/"},
    }  # fmt: skip
    where = f"{ADMISSION}/validatingwebhookconfigurations"
    await world.send("POST", where, {"metadata": {"name": name}, "webhooks": [hook]})
    return f"{where}/{name}"


async def policy(world: World) -> str:
    """A policy that no Deployment meets."""
    name, where = world.namespace, f"{ADMISSION}/validatingadmissionpolicies"
    rules = {"resourceRules": [DEPLOYMENTS]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": rules,
        "validations": [{"expression": "false", "message": "Not here."}],
    }
    await world.send("POST", where, {"metadata": {"name": name}, "spec": spec})
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector(world)},
    }
    await world.send(
        "POST", f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": binding}
    )
    return f"{ADMISSION}/validatingadmissionpolicybindings/{name}"


async def quota(world: World) -> str:
    """A quota of no Deployments, whose use the test counts in place of the quota controller."""
    where = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    hard = {"count/deployments.apps": "0"}
    await world.send("POST", where, {"metadata": {"name": "none"}, "spec": {"hard": hard}})
    counted = {"status": {"hard": hard, "used": {"count/deployments.apps": "0"}}}
    await world.send("PATCH", f"{where}/none/status", counted, "application/merge-patch+json")
    return f"{where}/none"


REFUSALS: Final[dict[str, tuple[Callable[[World], Any], str, str]]] = {
    "a webhook that cannot be called": (webhook, "failed calling webhook", "Start the webhook's service or remove its configuration"),
    "a policy": (policy, "Not here.", "change the policy that rejects the write"),
    "a quota": (quota, "exceeded quota: none", "Raise the quota"),
}  # fmt: skip


def may_create_deployments(world: World) -> bool:
    """Whether a dry run is admitted; what admission reads of the API server reaches it with a delay."""
    labels = {"app": uuid.uuid4().hex[:8]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    body = {"metadata": {"name": labels["app"]}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    try:
        world.server.request("POST", f"{path('Deployment', world.namespace)}?dryRun=All", body)
    except HTTPError as error:
        error.close()
        return False
    return True


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_write_that_admission_refuses_is_a_condition_until_it_is_admitted(crd: ApiServer, refusal: str) -> None:
    make_refusal, words, step = REFUSALS[refusal]

    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        refusing = await make_refusal(world)
        wait_until(lambda: not may_create_deployments(world))
        operator = world.operator()
        with pytest.raises(ClusterError):
            await operator.reconcile(world.key)
        ready = await world.condition("Ready")
        assert (ready["status"], ready["reason"]) == ("False", "WriteRefused"), ready
        assert words in ready["message"] and step in ready["message"], ready["message"]
        await world.send("DELETE", refusing)
        wait_until(lambda: may_create_deployments(world))
        await world.settle(operator)
        assert (await world.condition("Ready"))["reason"] != "WriteRefused"
        assert await world.child("Deployment", "chat")

    in_worlds(crd, story)


def test_in_a_namespace_that_is_being_deleted_nothing_is_made_anew(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        operator = await world.settle()
        await world.send("DELETE", f"/api/v1/namespaces/{world.namespace}")  # no controller here that ends it
        await world.send("DELETE", f"/api/v1/namespaces/{world.namespace}/services/chat")
        with pytest.raises(ClusterError, match="being terminated"):
            await operator.reconcile(world.key)
        ready = await world.condition("Ready")
        assert (ready["status"], ready["reason"]) == ("False", "WriteRefused"), ready
        assert "The namespace is being deleted" in ready["message"], ready["message"]
        assert await world.reader.get("Service", world.namespace, "chat") is None

    in_worlds(crd, story)
