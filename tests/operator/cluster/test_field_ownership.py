"""Which fields of other writers the operator takes over where they exclude its own."""

from typing import Any

import pytest

from sluice import contract
from sluice_operator.cluster.field_ownership import is_orphan_of, taken_over

PORT: dict[str, Any] = {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:name": {}}}}
OURS: dict[str, Any] = {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:selector": {}}}
CHILD: dict[str, Any] = {"kind": "Deployment", "metadata": {"ownerReferences": [{"uid": "1"}]}, "spec": {}}


def entry(manager: str, operation: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsV1": fields} | more


def live(*others: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"managedFields": [entry(contract.FIELD_MANAGER, "Apply", OURS), *others]}}


def test_the_spec_is_taken_over_and_labels_stay_with_their_writer() -> None:
    labels: dict[str, Any] = {"f:metadata": {"f:labels": {"f:team": {}}}}
    found = taken_over(live(entry("kubectl-edit", "Update", labels | {"f:spec": PORT})), CHILD)
    assert found is not None
    assert [each["fieldsV1"] for each in found] == [OURS | {"f:spec": OURS["f:spec"] | PORT}, labels]


@pytest.mark.parametrize("has_count", [False, True])
def test_a_count_is_taken_over_only_where_the_manifest_has_one(has_count: bool) -> None:
    manifest = CHILD | {"spec": {"replicas": 2}} if has_count else CHILD
    found = taken_over(live(entry("kubectl-edit", "Update", {"f:spec": PORT | {"f:replicas": {}}})), manifest)
    assert found is not None and ("f:replicas" in found[0]["fieldsV1"]["f:spec"]) is has_count
    assert [each["fieldsV1"] for each in found[1:]] == ([] if has_count else [{"f:spec": {"f:replicas": {}}}])


@pytest.mark.parametrize(
    "other",
    [
        entry("kube-controller-manager", "Update", {"f:status": {"f:replicas": {}}}, subresource="status"),
        entry("hpa", "Update", {"f:spec": {"f:replicas": {}}}, subresource="scale"),
        entry("argocd", "Update", {"f:metadata": {"f:annotations": {"f:x": {}}}}),
        entry("old", "Update", {"f:spec": PORT}, apiVersion="apps/v1beta1"),
    ],
    ids=lambda other: other["manager"],
)
def test_what_excludes_none_of_ours_is_left_alone(other: dict[str, Any]) -> None:
    assert taken_over(live(other), CHILD) is None


def test_of_a_pod_which_its_deployment_owns_nothing_is_taken_over() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "chat-1"}}
    assert taken_over(live(entry("kube-controller-manager", "Update", {"f:spec": PORT})), pod) is None


OWNER: dict[str, Any] = {"metadata": {"name": "chat", "uid": "u"}}
LABELS: dict[str, str] = {contract.LABEL_INSTANCE: "chat", contract.LABEL_MANAGED_BY: contract.MANAGED_BY}
APPLIED: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{label}": {} for label in LABELS}}}


def orphan(labels: dict[str, str], *writers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "chat", "labels": labels, "managedFields": list(writers)} | metadata}


def test_an_orphan_that_the_operator_has_applied_with_the_owners_labels_is_a_child() -> None:
    other = {"kind": "ConfigMap", "uid": "other"}
    ours = entry(contract.FIELD_MANAGER, "Apply", APPLIED)
    assert is_orphan_of(orphan(LABELS, ours), OWNER)
    assert is_orphan_of(orphan(LABELS | {"team": "a"}, entry("kubectl", "Update", {}), ours), OWNER)
    assert is_orphan_of(orphan(LABELS, ours, ownerReferences=[other]), OWNER)


@pytest.mark.parametrize(
    "thing",
    [
        orphan(LABELS),
        orphan({}, entry(contract.FIELD_MANAGER, "Apply", APPLIED)),
        orphan(LABELS | {contract.LABEL_INSTANCE: "other"}, entry(contract.FIELD_MANAGER, "Apply", APPLIED)),
        orphan(LABELS, entry("kubectl", "Apply", APPLIED)),
        orphan(LABELS, entry(contract.FIELD_MANAGER, "Update", APPLIED)),
        orphan(LABELS, entry(contract.FIELD_MANAGER, "Apply", {"f:spec": {}})),
        orphan(
            LABELS,
            entry(contract.FIELD_MANAGER, "Apply", APPLIED),
            ownerReferences=[{"kind": "ReplicaSet", "uid": "other", "controller": True}],
        ),
    ],
    ids=["no record", "no labels", "another instance", "another manager", "no apply", "labels of others", "controller"],
)
def test_an_orphan_without_such_a_proof_is_none(thing: dict[str, Any]) -> None:
    assert not is_orphan_of(thing, OWNER)
