"""The canary revisions of a directory, from the slices of their Services."""

from typing import Any

import pytest

from sluice import contract
from sluice_gateway.cluster.directory import Directory
from sluice_gateway.routing import Canary
from tests.gateway.cluster.documents import by_name, deployment, endpoint, slice_of


def canary_slice(*pods: str, weight: str | None = "10", resource: str = "chat", name: str = "x") -> dict[str, Any]:
    made = slice_of(resource, *(endpoint(pod) for pod in pods))
    service = f"{resource}{contract.CANARY_SUFFIX}"
    made["metadata"]["name"] = f"{service}-{name}"
    made["metadata"]["labels"] |= {"kubernetes.io/service-name": service}
    if weight is not None:
        made["metadata"]["labels"][contract.LABEL_WEIGHT] = weight
    return made


def directory_of(*slices: dict[str, Any]) -> Directory:
    directory = Directory()
    named = {"uri": "pvc://models/tiny", "servedName": "assistant"}
    directory.set_deployments("", by_name(deployment("chat", model=named)))
    directory.set_slices("", by_name(slice_of("chat", endpoint("old-1"), endpoint("new-1")), *slices))
    return directory


def test_the_pods_of_the_canarys_service_are_the_canary_and_its_label_is_the_weight() -> None:
    directory = directory_of(canary_slice("new-1"))
    assert directory.canaries() == {"assistant": Canary(0.1, frozenset({"ns/new-1"}))}
    assert {backend.name for backend in directory.backends()} == {"ns/old-1", "ns/new-1"}


def test_without_such_a_service_there_is_no_canary() -> None:
    directory = directory_of()
    assert directory.canaries() == {}
    foreign = canary_slice("new-1")
    foreign["metadata"]["labels"]["kubernetes.io/service-name"] = "other-canary"
    assert directory_of(foreign).canaries() == {}
    assert directory_of(canary_slice("new-1", resource="unknown")).canaries() == {}


def test_a_changed_weight_leaves_the_replicas_as_they_are() -> None:
    directory = directory_of(canary_slice("new-1"))
    before = directory.backends()
    directory.set_slices(
        "", by_name(slice_of("chat", endpoint("old-1"), endpoint("new-1")), canary_slice("new-1", weight="50"))
    )
    assert directory.backends() == before
    assert directory.canaries()["assistant"].share == 0.5


@pytest.mark.parametrize("weight", [None, "", "-1", "1.5", "101", "1000", "½", "much"])
def test_a_weight_that_is_no_percentage_sends_nothing(weight: str | None) -> None:
    assert directory_of(canary_slice("new-1", weight=weight)).canaries()["assistant"].share == 0.0


def test_while_a_new_weight_spreads_over_several_slices_the_lower_one_applies() -> None:
    slices = (canary_slice("new-1", weight="50"), canary_slice("new-2", weight="20", name="y"))
    assert directory_of(*slices).canaries() == {"assistant": Canary(0.2, frozenset({"ns/new-1", "ns/new-2"}))}
