"""The Deployment of a canary before it is deleted."""

from sluice_operator import render


def test_a_canary_without_pods_is_the_live_one_with_its_owner_and_no_replica() -> None:
    owner = [{"kind": "LLMDeployment", "name": "chat", "uid": "1"}]
    given = {
        "name": "chat-canary",
        "namespace": "models",
        "labels": {"a": "b"},
        "annotations": {},
        "ownerReferences": owner,
    }
    spec = {"replicas": 2, "template": {"metadata": {}}}
    live = {"metadata": given | {"resourceVersion": "5", "managedFields": []}, "spec": spec, "status": {"replicas": 2}}
    made = render.without_pods(live)
    assert made["metadata"] == given
    assert made["spec"] == spec | {"replicas": 0}
    assert set(made) == {"apiVersion", "kind", "metadata", "spec"}
