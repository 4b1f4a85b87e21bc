"""The overlay on the engine pod: each field arrives where a pod has it, and takes nothing away."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sluice_operator import render
from sluice_operator.api import parse
from sluice_operator.api.template.volumes import MANAGED_FOLDERS, MANAGED_VOLUMES

IMAGE = "sluice/engine:dev"
OWN_PODS = {"matchLabels": {"app.kubernetes.io/name": "sluice-engine", "app.kubernetes.io/instance": "chat"}}
EVERYTHING = {
    "model": {
        "uri": "pvc://models/m",
        "tokenSecretRef": {"name": "hub"},
        "credentialsSecretRef": {"name": "bucket"},
        "cache": {"claim": "cache"},
    },
    "auth": {"apiKeysSecretRef": {"name": "keys"}, "tlsSecretRef": {"name": "tls"}},
}


def spec_with(**template: Any) -> dict[str, Any]:
    return {"model": {"uri": "pvc://models/m"}, "engine": {"template": template}}


def children(spec: dict[str, Any], user: int | None = render.USER, *, asks: bool = False) -> tuple[dict[str, Any], ...]:
    document = {
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "chat", "namespace": "team", "uid": "u-1"},
        "spec": spec,
    }
    defaults = render.PodDefaults(IMAGE, user, asks_read_token=asks)
    return render.children(parse(document), defaults=defaults, replicas=1, token="t")


def pod(spec: dict[str, Any], user: int | None = render.USER, *, asks: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = children(spec, user, asks=asks)[-1]["spec"]["template"]["spec"]
    return found


def container(spec: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod(spec)["containers"]
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priorityClassName", "serving"),
        ("runtimeClassName", "nvidia"),
        ("imagePullSecrets", [{"name": "a"}, {"name": "b"}]),
        ("nodeSelector", {"pool": "gpu"}),
        ("tolerations", [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]),
        (
            "topologySpreadConstraints",
            [
                {
                    "maxSkew": 2,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
                    "minDomains": 3,
                    "matchLabelKeys": ["pod-template-hash"],
                    "nodeAffinityPolicy": "Ignore",
                    "nodeTaintsPolicy": "Honor",
                }
            ],
        ),
        (
            "affinity",
            {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "gpu", "operator": "Exists"},
                                    {"key": "gpu.memory", "operator": "Gt", "values": ["70000"]},
                                ]
                            }
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": {"matchExpressions": [{"key": "spot", "operator": "DoesNotExist"}]}}
                    ],
                },
                "podAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 7,
                            "podAffinityTerm": {
                                "topologyKey": "rack",
                                "labelSelector": {"matchLabels": {"app": "cache"}},
                            },
                        }
                    ]
                },
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "noisy"}}}
                    ]
                },
            },
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_field_of_placement_arrives_as_it_is_given(field: str, value: Any) -> None:
    assert field not in pod(spec_with())
    assert pod(spec_with(**{field: value}))[field] == value


def test_terms_without_a_selector_mean_the_pods_of_the_resource() -> None:
    term = {"topologyKey": "kubernetes.io/hostname"}
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": [term],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}],
    }
    spread = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]
    rendered = pod(
        spec_with(affinity={"podAffinity": affinity, "podAntiAffinity": affinity}, topologySpreadConstraints=spread)
    )
    for kind in ("podAffinity", "podAntiAffinity"):
        made = rendered["affinity"][kind]
        (required,) = made["requiredDuringSchedulingIgnoredDuringExecution"]
        (preferred,) = made["preferredDuringSchedulingIgnoredDuringExecution"]
        assert required["labelSelector"] == preferred["podAffinityTerm"]["labelSelector"] == OWN_PODS
    assert rendered["topologySpreadConstraints"] == [{**spread[0], "labelSelector": OWN_PODS}]
    assert OWN_PODS["matchLabels"] == children(spec_with())[-1]["spec"]["selector"]["matchLabels"]


@pytest.mark.parametrize("nothing", [{}, {"nodeAffinity": {}}, {"podAffinity": {}, "podAntiAffinity": {}}])
def test_an_empty_affinity_is_none(nothing: dict[str, Any]) -> None:
    assert pod(spec_with(affinity=nothing)) == pod(spec_with())


def test_a_selector_of_everything_is_kept() -> None:
    spread = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}]
    assert pod(spec_with(topologySpreadConstraints=spread))["topologySpreadConstraints"] == spread


def test_variables_are_read_from_secrets_and_config_maps() -> None:
    given = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token", "optional": True}}},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"name": "C", "value": "plain"},
    ]
    assert container(spec_with(env=given))["env"][-3:] == given


def test_volumes_have_the_sources_that_were_given_and_only_an_empty_dir_is_written() -> None:
    rendered = pod(
        spec_with(
            volumes=[
                {"name": "ca", "configMap": {"name": "ca", "items": [{"key": "a", "path": "b/a.pem"}]}},
                {"name": "licence", "secret": {"secretName": "licence", "optional": True}},
                {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            ],
            volumeMounts=[
                {"name": "ca", "mountPath": "/mnt/ca"},
                {"name": "licence", "mountPath": "/mnt/licence", "readOnly": True},
                {"name": "scratch", "mountPath": "/mnt/scratch"},
                {"name": "scratch", "mountPath": "/mnt/readable", "readOnly": True},
                {"name": "data", "mountPath": "/mnt/data", "subPath": "a/b"},
            ],
        )
    )
    assert rendered["volumes"][-4:] == [
        {"name": "ca", "configMap": {"name": "ca", "items": [{"key": "a", "path": "b/a.pem"}], "defaultMode": 0o444}},
        {"name": "licence", "secret": {"secretName": "licence", "optional": True, "defaultMode": 0o440}},
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
    ]
    assert rendered["containers"][0]["volumeMounts"][-5:] == [
        {"name": "ca", "mountPath": "/mnt/ca", "readOnly": True},
        {"name": "licence", "mountPath": "/mnt/licence", "readOnly": True},
        {"name": "scratch", "mountPath": "/mnt/scratch"},
        {"name": "scratch", "mountPath": "/mnt/readable", "readOnly": True},
        {"name": "data", "mountPath": "/mnt/data", "subPath": "a/b", "readOnly": True},
    ]


def test_shared_memory_is_a_volume_of_the_given_size() -> None:
    rendered = pod(spec_with(shmSize="2Gi"))
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}} in rendered["volumes"]
    assert {"name": "shm", "mountPath": "/dev/shm"} in rendered["containers"][0]["volumeMounts"]
    assert "/dev/shm" not in json.dumps(pod(spec_with()))


def test_several_accelerators_share_the_model_and_have_a_larger_dev_shm() -> None:
    def container(count: int, **template: Any) -> tuple[dict[str, Any], list[Any]]:
        given = spec_with(**template)
        rendered = pod(given | {"engine": given["engine"] | {"accelerator": {"count": count}}})
        return rendered["containers"][0], [each for each in rendered["volumes"] if each["name"] == "shm"]

    one, shm = container(1)
    assert shm == []
    assert not [each for each in one["args"] if each.startswith("--tensor-parallel")]
    four, shm = container(4)
    assert "--tensor-parallel=4" in four["args"]
    assert "--device=cuda" in four["args"]
    assert four["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert shm == [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]
    assert {"name": "shm", "mountPath": "/dev/shm"} in four["volumeMounts"]
    assert container(4, shmSize="8Gi")[1][0]["emptyDir"]["sizeLimit"] == "8Gi"


def test_ids_are_fixed_chosen_or_left_to_the_cluster() -> None:
    ids = {"runAsUser", "runAsGroup", "fsGroup"}
    fixed = pod(spec_with())["securityContext"]
    assert {fixed[field] for field in ids} == {65532}
    chosen = pod(spec_with(securityContext={"runAsUser": 1000, "supplementalGroups": [7]}))["securityContext"]
    assert chosen == {**fixed, "runAsUser": 1000, "supplementalGroups": [7]}
    assigned = pod(spec_with(), user=None)["securityContext"]
    assert assigned == {field: value for field, value in fixed.items() if field not in ids}
    assert assigned["runAsNonRoot"] is True
    mixed = pod(spec_with(securityContext={"fsGroup": 9}), user=None)["securityContext"]
    assert mixed == {**assigned, "fsGroup": 9}


def test_the_list_of_managed_volumes_is_what_pods_can_have() -> None:
    whole = pod({**EVERYTHING, "engine": {"template": {"shmSize": "1Mi"}}}, asks=True)
    assert sorted(volume["name"] for volume in whole["volumes"]) == sorted(MANAGED_VOLUMES)


def test_each_folder_that_the_pod_mounts_is_closed_to_the_overlay() -> None:
    whole = container({**EVERYTHING, "engine": {"template": {"shmSize": "1Mi"}}})
    for mount in whole["volumeMounts"]:
        path = mount["mountPath"]
        assert any(path == folder or path.startswith(f"{folder}/") for folder in MANAGED_FOLDERS), path


OVERLAYS = st.fixed_dictionaries(
    {},
    optional={
        "priorityClassName": st.sampled_from(["a", "b"]),
        "runtimeClassName": st.sampled_from(["a", "b"]),
        "shmSize": st.sampled_from(["1Gi", "2Gi"]),
        "imagePullSecrets": st.sampled_from([[{"name": "a"}], [{"name": "b"}, {"name": "a"}]]),
        "env": st.sampled_from(
            [[{"name": "A", "value": "x"}], [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]]
        ),
        "volumes": st.sampled_from(
            [
                [{"name": "x", "emptyDir": {}}],
                [{"name": "x", "secret": {"secretName": "s"}}],
                [{"name": "x", "configMap": {"name": "c"}}],
                [{"name": "x", "persistentVolumeClaim": {"claimName": "c"}}],
            ]
        ),
        "securityContext": st.sampled_from([{}, {"runAsUser": 5}, {"fsGroup": 5, "privileged": False}]),
        "topologySpreadConstraints": st.sampled_from(
            [[], [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]]
        ),
    },
)


@given(OVERLAYS, OVERLAYS)
def test_another_overlay_and_back_gives_the_same_children(first: dict[str, Any], second: dict[str, Any]) -> None:
    before, between, after = (children(spec_with(**each)) for each in (first, second, first))
    assert before == after
    differing = {new["kind"] for old, new in zip(before, between, strict=True) if old != new}
    pods_differ = before[-1]["spec"]["template"] != between[-1]["spec"]["template"]
    assert differing == ({"Deployment"} if pods_differ else set())
    annotations = [made[-1]["metadata"]["annotations"] for made in (before, between)]
    assert (annotations[0] != annotations[1]) == pods_differ  # the template's hash, by which a rollout is seen


@given(OVERLAYS)
def test_an_overlay_adds_and_takes_nothing_away(overlay: dict[str, Any]) -> None:
    bare, laid = pod(spec_with()), pod(spec_with(**overlay))
    assert bare.keys() <= laid.keys()
    for part in ("env", "volumeMounts", "ports", "args"):
        assert laid["containers"][0][part][: len(bare["containers"][0][part])] == bare["containers"][0][part]
    assert laid["volumes"][: len(bare["volumes"])] == bare["volumes"]
    assert laid["containers"][0]["securityContext"] == bare["containers"][0]["securityContext"]
    assert "&id" not in yaml.safe_dump(laid)
