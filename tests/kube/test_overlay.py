"""Whatever the API server accepts as `spec.engine.template` arrives unchanged in the pod template that it accepts."""

import urllib.error
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from sluice import contract
from sluice_operator import render
from sluice_operator.api import parse
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.kinds import path
from tests.kube.api_server import ApiServer
from tests.kube.overlays import all_fields, fields_of, lost, overlays
from tests.kube.specs import BASE
from tests.kube.world import World, document, in_worlds

NAMESPACE = "default"
APPLY = "application/apply-patch+yaml"
# Every field that can change a pod, with what a platform team writes.
TERM: Object = {
    "topologyKey": "topology.kubernetes.io/zone",
    "labelSelector": {
        "matchLabels": {"app": "cache"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["hot", "warm"]}],
    },
    "namespaces": ["caches", "shared"],
    "namespaceSelector": {
        "matchLabels": {"team": "search"},
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["dev"]}],
    },
    "matchLabelKeys": ["pod-template-hash"],
    "mismatchLabelKeys": ["tenant"],
}
AFFINITY: Object = {
    "requiredDuringSchedulingIgnoredDuringExecution": [TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": TERM}],
}
NODES: Object = {
    "matchExpressions": [{"key": "gpu.memory", "operator": "Gt", "values": ["70000"]}],
    "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["broken-1.example.com"]}],
}
SELECTED: Object = {"name": "s", "key": "k", "optional": True}
WHOLE: Object = {
    "labels": {"team": "search"},
    "annotations": {"example.com/owner": "search"},
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [
        {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 30}
    ],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NODES]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": NODES}],
        },
        "podAffinity": AFFINITY,
        "podAntiAffinity": AFFINITY,
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 2,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": TERM["labelSelector"],
            "minDomains": 3,
            "matchLabelKeys": ["pod-template-hash"],
            "nodeAffinityPolicy": "Ignore",
            "nodeTaintsPolicy": "Honor",
        }
    ],
    "priorityClassName": "serving",
    "runtimeClassName": "nvidia",
    "schedulerName": "volcano",
    "imagePullSecrets": [{"name": "registry"}],
    "env": [
        {"name": "A", "value": "plain"},
        {"name": "B", "valueFrom": {"secretKeyRef": SELECTED}},
        {"name": "C", "valueFrom": {"configMapKeyRef": SELECTED}},
        {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']", "apiVersion": "v1"}}},
        {
            "name": "E",
            "valueFrom": {
                "resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi", "containerName": "engine"}
            },
        },
    ],
    "envFrom": [
        {"prefix": "APP_", "secretRef": {"name": "app", "optional": True}},
        {"prefix": "MAP_", "configMapRef": {"name": "app", "optional": False}},
    ],
    "volumes": [
        {
            "name": "ca",
            "configMap": {
                "name": "ca",
                "items": [{"key": "a", "path": "b/a.pem", "mode": 0o400}],
                "optional": True,
                "defaultMode": 0o440,
            },
        },
        {
            "name": "key",
            "secret": {
                "secretName": "key",
                "items": [{"key": "a", "path": "a", "mode": 0}],
                "optional": True,
                "defaultMode": 0o400,
            },
        },
        {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
    ],
    "volumeMounts": [
        {"name": "ca", "mountPath": "/mnt/ca", "mountPropagation": "None", "recursiveReadOnly": "Disabled"},
        {"name": "data", "mountPath": "/mnt/data", "subPath": "a/b", "readOnly": True},
    ],
    "shmSize": "2048Mi",
    "securityContext": {
        "runAsUser": 1000,
        "runAsGroup": 1001,
        "fsGroup": 1002,
        "supplementalGroups": [1003, 1004],
        "supplementalGroupsPolicy": "Strict",
        "fsGroupChangePolicy": "Always",
        "runAsNonRoot": True,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
    },
}


def accepted(server: ApiServer, overlay: Object) -> Object | None:
    """The resource as the API server would store it; None if it refuses the overlay."""
    body = document(BASE | {"engine": {"template": overlay}})
    try:
        where = path(contract.KIND, NAMESPACE)
        return server.request("POST", f"{where}?fieldValidation=Strict&dryRun=All", body)
    except urllib.error.HTTPError as error:
        assert error.code == 422, error.read()
        return None


def pod_template(server: ApiServer, resource: Object) -> Object:
    """The pod template as the API server would store it. Raises urllib.error.HTTPError if it refuses the Deployment."""
    made = render.children(
        parse(resource, strict=False), defaults=render.PodDefaults("engine:1"), replicas=1, token="t"
    )
    (deployment,) = (each for each in made if each["kind"] == "Deployment")
    where = f"{path('Deployment', NAMESPACE, 'chat')}?fieldManager=sluice&force=true&dryRun=All"
    taken: dict[str, Any] = server.request("PATCH", where, deployment, APPLY)["spec"]["template"]
    return taken


# Without shrinking, as in test_convergence.py: the sentences name the field.
@settings(
    max_examples=25,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(overlay=overlays())
def test_what_the_api_server_accepts_as_an_overlay_arrives_unchanged_in_the_pod_template(
    crd: ApiServer, overlay: Object
) -> None:
    resource = accepted(crd, overlay)
    assert resource is not None, "the types accept what the API server refuses"
    assert lost(overlay, pod_template(crd, resource)) == []


def test_the_whole_overlay_sets_every_field() -> None:
    assert set(fields_of(WHOLE)) == set(all_fields())


def test_an_overlay_with_every_field_arrives_by_the_operator(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE | {"engine": {"template": WHOLE}})
        await world.settle()
        assert lost(WHOLE, (await world.child("Deployment", "chat"))["spec"]["template"]) == []

    in_worlds(crd, story)


@pytest.mark.parametrize("field", WHOLE)
def test_a_field_that_does_not_arrive_is_told(crd: ApiServer, field: str) -> None:
    """The comparison itself: it sees the lack of any field of the overlay in a pod template."""
    resource = accepted(crd, {name: value for name, value in WHOLE.items() if name not in _of(field)})
    assert resource is not None
    assert lost({field: WHOLE[field]}, pod_template(crd, resource)) != []


def _of(field: str) -> set[str]:
    """With the fields that need it."""
    return {field, "volumeMounts"} if field == "volumes" else {field}
