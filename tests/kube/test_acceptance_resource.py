"""Rows of the acceptance table on resources, on a real API server: the name of a test shows its row."""

import json
import os
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice import contract
from sluice_operator.cluster.client import Key, Object
from sluice_operator.cluster.kinds import path
from tests.kube.api_server import ApiServer
from tests.kube.specs import BASE
from tests.kube.world import RESTORED, World, document, in_worlds

DATA = Path(__file__).parents[1] / "data/kubernetes"
REFUSED = yaml.safe_load((DATA / "refused.yaml").read_text())
# What the API server of Kubernetes 1.34 answers, without the name of the object; SLUICE_UPDATE_GOLDENS=1 writes it anew.
# Empty: it takes the object. A schema cannot know the zones that exist: that schedule is out, and a condition names it.
ANSWERS = DATA / "refusals_of_the_api_server.yaml"
KNOWN: dict[str, str] = yaml.safe_load(ANSWERS.read_text()) if ANSWERS.exists() else {}
ONE_PASS = 1
FLIPS = 100
PASS_EVERY = 5  # flips: 10 s of flips have 20 passes, half a second apart
ENGINE_LABELS: Object = {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_INSTANCE: "chat"}
MERGE = "application/merge-patch+json"


def resources(namespace: str = "default") -> str:
    return path(contract.KIND, namespace)


def refusal(server: ApiServer, body: Object, query: str = "fieldValidation=Strict&dryRun=All") -> str:
    """The message with which the API server refuses an object; empty if it takes it."""
    try:
        server.request("POST", f"{resources()}?{query}", body)
    except urllib.error.HTTPError as error:
        assert error.code in (400, 422), error
        return str(json.loads(error.read())["message"])
    return ""


@pytest.mark.parametrize("entry", REFUSED, ids=lambda entry: entry["case"])
def test_row_numbers_uris_names_and_sizes_are_refused(crd: ApiServer, entry: dict[str, Any]) -> None:
    spec: dict[str, Any] = {"model": {"uri": "pvc://models/m"}} | (entry.get("spec") or {})
    spec["model"] = {"uri": "pvc://models/m"} | spec["model"]
    message = refusal(crd, document(spec, entry.get("name", "chat"))).partition(" is invalid: ")
    said = message[2] or message[0]
    if os.environ.get("SLUICE_UPDATE_GOLDENS"):
        KNOWN[entry["case"]] = said
        ANSWERS.write_text(yaml.safe_dump(KNOWN, sort_keys=False, allow_unicode=True, width=10**6))
    assert said == KNOWN[entry["case"]]
    field = entry["says"].split()[0].rpartition(".")[2].partition("[")[0]
    assert not said or field in said


def test_the_stored_answers_are_of_the_cases_and_only_one_is_taken() -> None:
    assert list(KNOWN) == [entry["case"] for entry in REFUSED]
    assert [case for case, said in KNOWN.items() if not said] == ["unknown time zone"]


def test_row_a_uri_of_a_megabyte_is_refused_and_not_repeated(crd: ApiServer) -> None:
    huge = refusal(crd, document({"model": {"uri": f"pvc://models/{'a' * 1_000_000}"}}))
    assert "spec.model.uri" in huge and "may not be more than" in huge
    assert len(huge) < 2000


def test_row_an_unknown_field_or_a_wrong_case_is_pruned_and_refused_in_strict_mode(crd: ApiServer) -> None:
    wrong = document(BASE | {"Paused": True, "surprise": 1})
    message = refusal(crd, wrong)
    assert 'unknown field "spec.Paused"' in message and 'unknown field "spec.surprise"' in message
    taken = crd.request("POST", f"{resources()}?fieldValidation=Ignore&dryRun=All", wrong)
    assert not {"Paused", "surprise"} & set(taken["spec"])


def test_row_a_schedule_in_an_unknown_time_zone_is_out_and_the_rest_goes_on(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        schedule = {"cron": "0 8 * * *", "durationSeconds": 3600, "minReplicas": 2}
        schedules = [schedule | {"timezone": zone} for zone in ("Europe/Atlantis", "Europe/Berlin")]
        await world.create(BASE | {"scaling": BASE["scaling"] | {"minReplicas": 3, "schedules": schedules}})
        await world.settle()
        active = await world.condition("ScalingActive")
        assert "schedules[0].timezone" in active["message"] and "Europe/Atlantis" in active["message"]
        assert "schedules[1]" not in active["message"]
        assert (await world.child("Deployment", "chat"))["spec"]["replicas"] == 3

    in_worlds(crd, story)


def test_row_of_two_resources_with_one_served_name_the_second_conflicts(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        spec = BASE | {"model": BASE["model"] | {"servedName": "one"}}
        await world.create(spec)
        operator = await world.settle()
        before = await world.state()
        await world.send("POST", resources(world.namespace), document(spec, "second"))
        await operator.reconcile(Key(world.namespace, "second"))
        await world.settle(operator, ONE_PASS)
        ready = await world.condition("Ready", "second")
        assert (ready["status"], ready["reason"]) == ("False", "Conflict")
        assert "chat" in ready["message"]
        assert await world.state() == before

    in_worlds(crd, story)


LABELS: Object = {"app": "mine"}
CONTAINERS: Object = {"containers": [{"name": "main", "image": "main:1"}]}
# Children whose names a user can take, with what such an object of another owner has. A Secret's name is secret itself.
FOREIGN: dict[str, Object] = {
    "ConfigMap chat-targets": {"data": {"a": "b"}},
    "Deployment chat": {
        "spec": {
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": CONTAINERS},
        }
    },
    "NetworkPolicy chat-engine": {"spec": {"podSelector": {"matchLabels": LABELS}}},
    "PodDisruptionBudget chat": {"spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}}},
    "Service chat": {"spec": {"ports": [{"port": 80}], "selector": LABELS}},
    "Service chat-engines": {"spec": {"ports": [{"port": 80}], "selector": LABELS}},
    "ServiceAccount chat-engine": {"automountServiceAccountToken": False},
}


@pytest.mark.parametrize("child", FOREIGN)
@pytest.mark.parametrize("labels", [{}, ENGINE_LABELS], ids=["its own labels", "the labels of a child"])
def test_row_a_foreign_object_with_a_childs_name_is_not_adopted(crd: ApiServer, child: str, labels: Object) -> None:
    kind, _, name = child.partition(" ")

    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        metadata = {"name": name, "labels": labels}
        before = await world.send("POST", path(kind, world.namespace), {"metadata": metadata} | FOREIGN[child])
        await world.settle()
        assert await world.child(kind, name) == before
        ready = await world.condition("Ready")
        assert (ready["status"], ready["reason"]) == ("False", "Conflict")
        assert f"{kind} {world.namespace}/{name} exists and does not belong to this LLMDeployment" in ready["message"]

    in_worlds(crd, story)


def test_every_child_whose_name_a_user_can_take_has_a_foreign_object(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await world.settle()
        assert {each for each in await world.state() if not each.startswith("Secret ")} == set(FOREIGN)

    in_worlds(crd, story)


def test_row_a_child_edited_or_deleted_by_hand_is_restored_and_foreign_fields_stay(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await world.settle()
        before = await world.state()
        service, deployment = (path(kind, world.namespace, "chat") for kind in ("Service", "Deployment"))
        await world.send("PATCH", service, {"spec": {"selector": {contract.LABEL_INSTANCE: "nowhere"}}}, MERGE)
        await world.send("PATCH", deployment, {"metadata": {"annotations": {"example.com/kept": "yes"}}}, MERGE)
        await world.send("DELETE", path("PodDisruptionBudget", world.namespace, "chat"))
        await world.pass_for(RESTORED)
        after = await world.state()
        assert after["Deployment chat"]["metadata"]["annotations"].pop("example.com/kept") == "yes"
        assert after == before

    in_worlds(crd, story)


def test_row_of_a_spec_flipped_100_times_the_last_wins_with_few_rollouts(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world, fresh = make(), make()
        specs = [BASE | {"engine": {"scheduling": {"maxNumSeqs": 8 + number}}} for number in range(FLIPS)]
        await world.create(BASE)
        operator = await world.settle()
        for number, spec in enumerate(specs):
            await world.replace(spec)
            if number % PASS_EVERY == 0:
                await world.settle(operator, ONE_PASS)
        await world.settle(operator)
        await fresh.create(specs[-1])
        await fresh.settle()
        assert await world.state() == await fresh.state()
        assert (await world.child("Deployment", "chat"))["metadata"]["generation"] <= FLIPS / PASS_EVERY + 2

    in_worlds(crd, story)


def test_row_a_status_edited_by_hand_is_overwritten(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        operator = await world.settle()
        before = (await world.child(contract.KIND, "chat"))["status"]
        where = f"{path(contract.KIND, world.namespace, 'chat')}/status"
        await world.send("PATCH", where, {"status": {"readyReplicas": 99, "conditions": []}}, MERGE)
        await world.settle(operator, ONE_PASS)
        after = (await world.child(contract.KIND, "chat"))["status"]
        assert after["readyReplicas"] == before["readyReplicas"]
        assert [_stated(each) for each in after["conditions"]] == [_stated(each) for each in before["conditions"]]

    in_worlds(crd, story)


def _stated(condition: Object) -> tuple[str, str, str]:
    return condition["type"], condition["status"], condition["reason"]


def test_row_a_paused_resource_is_not_written_and_a_condition_says_so(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        operator = await world.settle()
        before = await world.state()
        await world.replace(BASE | {"paused": True, "rollout": {"maxSurge": 3}})
        await world.send("DELETE", path("Service", world.namespace, "chat-engines"))
        await world.settle(operator)
        after = await world.state()
        assert after == {name: child for name, child in before.items() if name != "Service chat-engines"}
        assert (await world.condition("Paused"))["status"] == "True"

    in_worlds(crd, story)
