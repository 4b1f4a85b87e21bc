"""Which models and replicas a gateway has, from the objects of an API server."""

from typing import Any

import pytest

from sluice_gateway.cluster.directory import Directory
from sluice_gateway.cluster.endpoints import ready_endpoints
from sluice_gateway.cluster.models import served_model
from tests.gateway.cluster.documents import by_name, deployment, endpoint, slice_of


def directory_of(deployments: list[dict[str, Any]], slices: list[dict[str, Any]]) -> Directory:
    directory = Directory()
    directory.set_deployments("", by_name(*deployments))
    directory.set_slices("", by_name(*slices))
    return directory


def test_a_ready_pod_of_a_deployment_is_a_replica_of_its_model() -> None:
    named = deployment("chat", model={"uri": "pvc://models/tiny", "servedName": "assistant"})
    directory = directory_of([named], [slice_of("chat", endpoint("chat-1", "10.0.0.7"))])
    (backend,) = directory.backends()
    assert (backend.name, backend.model) == ("ns/chat-1", "assistant")
    assert (backend.url, backend.admin_url) == ("http://10.0.0.7:8000", "http://10.0.0.7:8001")
    assert backend.owner == "uid-of-chat"  # from which the token of its reads derives


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ({"ready": True, "serving": True, "terminating": False}, True),
        ({}, True),  # absent means ready
        ({"ready": False, "serving": False, "terminating": False}, False),
        ({"ready": False, "serving": True, "terminating": True}, False),
    ],
)
def test_a_pod_that_is_not_ready_is_no_replica(conditions: dict[str, bool], ready: bool) -> None:
    assert bool(ready_endpoints([slice_of("chat", endpoint("chat-1", conditions=conditions))])) == ready


def test_a_pod_in_two_slices_is_one_replica() -> None:
    one = slice_of("chat", endpoint("chat-1", "10.0.0.7"))
    other = slice_of("chat", endpoint("chat-1", "fd00::7"), endpoint("chat-2", "fd00::8"), addressType="IPv6")
    other["metadata"]["name"] = "chat-engines-zzzzz"
    found = ready_endpoints([other, one])
    assert [(each.pod, each.host) for each in found] == [("chat-1", "10.0.0.7"), ("chat-2", "[fd00::8]")]


def test_slices_that_only_carry_the_labels_are_ignored() -> None:
    foreign = slice_of("chat", endpoint("mine"))
    foreign["metadata"]["labels"]["kubernetes.io/service-name"] = "mine"
    nameless = slice_of("chat", endpoint("mine"), ports=[{"name": "", "port": 8000}])
    no_pod = slice_of("chat", {"addresses": ["10.0.0.1"], "conditions": {}})
    assert ready_endpoints([foreign, nameless, no_pod]) == []
    unknown = directory_of([deployment("chat")], [slice_of("other", endpoint("other-1"))])
    assert unknown.backends() == ()


def test_of_two_deployments_of_one_name_the_older_serves(caplog: pytest.LogCaptureFixture) -> None:
    same = {"uri": "pvc://models/tiny", "servedName": "chat"}
    deployments = [
        deployment("younger", day=2, model=same),
        deployment("older", namespace="team", day=1, model=same),
        deployment("alone", day=3),
    ]
    slices = [
        slice_of("younger", endpoint("younger-1")),
        slice_of("older", endpoint("older-1"), namespace="team"),
        slice_of("alone", endpoint("alone-1")),
    ]
    directory = directory_of(deployments, slices)
    assert {backend.name for backend in directory.backends()} == {"team/older-1", "ns/alone-1"}
    assert caplog.messages == [
        "LLMDeployment ns/younger is not served here: LLMDeployment team/older already serves the name 'chat'"
    ]
    directory.set_deployments("", by_name(deployments[0], deployments[2]))  # the older one is deleted
    assert {backend.name for backend in directory.backends()} == {"ns/younger-1", "ns/alone-1"}


def test_each_namespace_has_its_own_watch() -> None:
    directory = Directory()
    for namespace in ("a", "b"):
        directory.set_deployments(namespace, by_name(deployment(namespace, namespace=namespace)))
        directory.set_slices(namespace, by_name(slice_of(namespace, endpoint("pod"), namespace=namespace)))
    assert set(directory.models) == {"a", "b"}
    directory.set_slices("a", {})
    assert [backend.name for backend in directory.backends()] == ["b/pod"]


def test_engines_that_serve_https_are_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    secure = deployment("chat", auth={"tlsSecretRef": {"name": "tls"}})
    directory = directory_of([secure], [slice_of("chat", endpoint("chat-1"))])
    assert (directory.models, directory.backends()) == ({}, ())
    assert "HTTPS" in caplog.text


def test_the_measured_start_bounds_how_long_a_request_is_held() -> None:
    started = deployment("chat") | {"status": {"coldStartSeconds": {"total": "4.2e+01"}}}
    assert directory_of([started], []).start_seconds("chat") == 42.0
    assert directory_of([deployment("chat")], []).start_seconds("chat") is None
    assert directory_of([], []).start_seconds(None) is None


def test_a_changed_deployment_is_read_again_and_a_deleted_one_is_forgotten() -> None:
    directory = directory_of([deployment("chat")], [slice_of("chat", endpoint("chat-1"))])
    renamed = deployment("chat", model={"uri": "pvc://models/tiny", "servedName": "assistant"})
    directory.set_deployments("", by_name(renamed))
    assert [backend.model for backend in directory.backends()] == ["assistant"]
    directory.set_deployments("", {})
    assert (directory.models, directory.backends()) == ({}, ())


def test_what_is_listed_of_a_model_without_a_replica() -> None:
    assert served_model(deployment("chat", day=2)).entry == {
        "id": "chat", "object": "model", "created": 1793606400, "owned_by": "sluice", "max_model_len": None,
        "type": "model", "display_name": "chat", "created_at": "2026-11-02T08:00:00Z", "lifecycle": "active",
        "max_input_tokens": None,
    }  # fmt: skip


def test_replicas_of_another_zone_are_known_once_the_gateways_own_is() -> None:
    slices = [
        slice_of("chat", *(endpoint(f"chat-{n}") | zone for n, zone in enumerate([{"zone": "a"}, {"zone": "b"}, {}])))
    ]
    directory = directory_of([deployment("chat")], slices)
    assert [backend.other_zone for backend in directory.backends()] == [False, False, False]
    directory.set_zone("a")
    assert [backend.other_zone for backend in directory.backends()] == [False, True, False]
