"""What holds for the children of any resource."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice import contract
from sluice_operator import render
from sluice_operator.api import LLMDeployment, LLMDeploymentSpec, parse
from sluice_operator.api.crd import structural_schema
from sluice_operator.api.llmdeployment import MAX_NAME
from sluice_operator.render import names
from sluice_operator.render.engine_args import model_path

IMAGE = "sluice/engine:dev"

# Every field of the spec, with a value other than its default (or than the base resource's).
CHANGES: dict[str, Any] = {
    "model.uri": "pvc://other/m",
    "model.tokenSecretRef.name": "hub-account",
    "model.tokenSecretRef.key": "hub-token",
    "model.credentialsSecretRef.name": "bucket-account",
    "model.cache.claim": "cache",
    "model.cache.node": True,
    "model.servedName": "other",
    "model.maxModelLength": 1024,
    "model.dtype": "bfloat16",
    "model.quantization": "int8",
    "engine.image": "other/engine:1",
    "engine.accelerator.resource": "amd.com/gpu",
    "engine.accelerator.count": 0,
    "engine.kvCache.size": "1Gi",
    "engine.kvCache.memoryPercent": 50,
    "engine.kvCache.cpuOffloadGiB": 2,
    "engine.scheduling.policy": "edf",
    "engine.scheduling.maxNumSeqs": 8,
    "engine.scheduling.maxBatchedTokens": 64,
    "engine.resources.requests": {"cpu": "1"},
    "engine.attentionBackend": "torch",
    "engine.resources.limits": {"memory": "1Gi"},
    "engine.template.labels": {"team": "search"},
    "engine.template.annotations": {"note": "x"},
    "engine.template.nodeSelector": {"pool": "gpu"},
    "engine.template.tolerations": [{"key": "gpu", "operator": "Exists"}],
    "engine.template.env": [{"name": "A", "value": "b"}],
    "engine.template.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms": [
        {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
    ],
    "engine.template.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
    ],
    "engine.template.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack"}],
    "engine.template.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "cache"}}}}
    ],
    "engine.template.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "host", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}
    ],
    "engine.template.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}
    ],
    "engine.template.topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "engine.template.priorityClassName": "serving",
    "engine.template.runtimeClassName": "nvidia",
    "engine.template.schedulerName": "volcano",
    "engine.template.envFrom": [{"prefix": "APP_", "secretRef": {"name": "app"}}],
    "engine.template.imagePullSecrets": [{"name": "registry"}],
    "engine.template.volumes": [{"name": "scratch", "emptyDir": {}}],
    "engine.template.volumeMounts": [{"name": "scratch", "mountPath": "/mnt/scratch"}],
    "engine.template.shmSize": "512Mi",
    "engine.template.securityContext.runAsUser": 1000,
    "engine.template.securityContext.runAsGroup": 1001,
    "engine.template.securityContext.fsGroup": 1002,
    "engine.template.securityContext.supplementalGroups": [1003],
    "engine.template.securityContext.supplementalGroupsPolicy": "Strict",
    "engine.template.securityContext.fsGroupChangePolicy": "Always",
    "auth.apiKeysSecretRef.name": "chat-keys",
    "auth.gatewayTokenSecretRef.name": "gateway-token",
    "auth.tlsSecretRef.name": "chat-tls",
    "rollout.maxSurge": 3,
    "rollout.maxUnavailable": 3,
    "rollout.drainSeconds": 7,
    "rollout.progressDeadlineSeconds": 1200,
}
# These reach engines while they run, by the targets file: they change a child and no pod.
RETARGETING: dict[str, Any] = {
    "slo.ttftMilliseconds": 100,
    "slo.itlMilliseconds": 10,
    "admission.mode": "Fixed",
    "admission.concurrency.min": 1,
    "admission.concurrency.max": 9,
}
# These say what holds for every pod anyway; the other value is refused (refused.yaml).
REPEATING: dict[str, Any] = {
    "engine.template.securityContext.runAsNonRoot": True,
    "engine.template.securityContext.privileged": False,
    "engine.template.securityContext.allowPrivilegeEscalation": False,
    "engine.template.securityContext.readOnlyRootFilesystem": True,
    "engine.template.securityContext.seccompProfile.type": "RuntimeDefault",
    "engine.template.securityContext.procMount": "Default",
    **{f"engine.template.{field}": False for field in ("hostNetwork", "hostPID", "hostIPC")},
    **{f"engine.template.{field}": [] for field in ("containers", "initContainers", "securityContext.sysctls")},
    **{f"engine.template.securityContext.capabilities.{field}": [] for field in ("add", "drop")},
}
# These are refused whatever they are (refused.yaml).
REFUSED = {"engine.template.securityContext.appArmorProfile", "engine.template.securityContext.seLinuxOptions"}
# These move the replica count, reach engines by PATCH /limits, or only tell the operator what to do.
WITHOUT_CHILD: dict[str, Any] = {
    "slo.attainmentPercent": "90",
    "scaling.mode": "Off",
    "scaling.minReplicas": 2,
    "scaling.maxReplicas": 9,
    "scaling.targetKVOccupancyPercent": 50,
    "scaling.scaleDownStabilizationSeconds": 1,
    "scaling.burstMemorySeconds": 60,
    "scaling.scaleToZeroAfterSeconds": 60,
    "scaling.priority": 5,
    "scaling.schedules": [{"cron": "0 8 * * *", "durationSeconds": 60, "minReplicas": 1}],
    "admission.maxQueueSeconds": 1,
    "routing.policy": "RoundRobin",
    "routing.sessionHeader": "x-session-id",
    "rollout.rollback": "Auto",
    "rollout.upgradePolicy": "Manual",
    "rollout.upgradeWindow.cron": "0 2 * * 6",
    "rollout.upgradeWindow.timezone": "Europe/Berlin",
    "rollout.upgradeWindow.durationSeconds": 60,
    "rollout.canary.weightPercent": 5,
    "rollout.canary.steps": 3,
    "rollout.canary.intervalSeconds": 60,
    "rollout.canary.maxErrorPercent": "0.5",
    "rollout.canary.minAttainmentPercent": "90",
    "replicas": 4,
    "paused": True,
}


def resource(changes: dict[str, Any] | None = None, name: str = "chat", uid: str = "u-1") -> LLMDeployment:
    spec: dict[str, Any] = {"model": {"uri": "pvc://models/m"}, "scaling": {"maxReplicas": 8}}
    for path, value in (changes or {}).items():
        *folders, leaf = path.split(".")
        place = spec
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = value
    if "tokenSecretRef" in spec["model"]:  # a key alone is not valid
        spec["model"]["tokenSecretRef"].setdefault("name", "hub")
    overlay = spec.get("engine", {}).get("template", {})
    if "volumeMounts" in overlay:  # a mount without its volume is not valid
        overlay.setdefault("volumes", [{"name": "scratch", "emptyDir": {}}])
    if "upgradeWindow" in spec.get("rollout", {}):  # a window without its start is not valid
        spec["rollout"]["upgradeWindow"].setdefault("cron", "0 3 * * 6")
    if spec["model"].get("quantization") == "int8":  # on an accelerator it is not valid
        spec.setdefault("engine", {}).setdefault("accelerator", {})["count"] = 0
    if spec.get("engine", {}).get("accelerator", {}).get("count") == 0:  # the CPU has one attention
        spec["engine"].pop("attentionBackend", None)
    if len(spec["model"].get("cache", {})) > 1:  # both kinds of cache are not valid
        del spec["model"]["cache"]["node"]
    metadata = {"name": name, "namespace": "team", "uid": uid}
    return parse({"apiVersion": contract.API_VERSION, "kind": contract.KIND, "metadata": metadata, "spec": spec})


def children(changes: dict[str, Any] | None = None, replicas: int | None = 1) -> tuple[dict[str, Any], ...]:
    return render.children(resource(changes), defaults=render.PodDefaults(IMAGE), replicas=replicas, token="t")


def deployment(made: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    return next(child for child in made if child["kind"] == "Deployment")


def leaves(schema: dict[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, field in schema["properties"].items():
        path = f"{prefix}{name}"
        found |= leaves(field, f"{path}.") if "properties" in field else {path}
    return found


def test_every_field_is_known_to_change_a_child_or_to_change_none() -> None:
    known = {*CHANGES, *RETARGETING, *REPEATING, *WITHOUT_CHILD, *REFUSED}
    assert leaves(structural_schema(LLMDeploymentSpec)) == known


@pytest.mark.parametrize("path", CHANGES)
def test_the_field_changes_a_child(path: str) -> None:
    assert children({path: CHANGES[path]}) != children()


@pytest.mark.parametrize("path", RETARGETING)
def test_the_field_changes_the_targets_and_no_pod(path: str) -> None:
    before, after = children(), children({path: RETARGETING[path]})
    assert [new["kind"] for old, new in zip(before, after, strict=True) if old != new] == ["ConfigMap"]


@pytest.mark.parametrize("path", [*WITHOUT_CHILD, *REPEATING])
def test_the_field_rolls_nothing(path: str) -> None:
    assert children({path: (WITHOUT_CHILD | REPEATING)[path]}) == children()


changes = st.dictionaries(st.sampled_from(sorted({**CHANGES, **WITHOUT_CHILD})), st.none(), max_size=12).map(
    lambda paths: {path: {**CHANGES, **WITHOUT_CHILD}[path] for path in paths}
)


@given(changes, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9))
def test_only_the_count_follows_replicas(some: dict[str, Any], before: int | None, after: int | None) -> None:
    old, new = deployment(children(some, before)), deployment(children(some, after))
    assert old["spec"].pop("replicas", None) == before
    assert new["spec"].pop("replicas", None) == after
    assert old == new


@given(changes)
def test_children_depend_on_nothing_but_the_resource(some: dict[str, Any]) -> None:
    first = children(some)
    children(CHANGES)
    assert children(some) == first


@given(changes)
def test_every_pod_is_restricted(some: dict[str, Any]) -> None:
    template = deployment(children(some))["spec"]["template"]["spec"]
    pod = template["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] == (1000 if "engine.template.securityContext.runAsUser" in some else 65532)
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert template["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & set(template)
    allowed = {"secret", "configMap", "emptyDir", "persistentVolumeClaim"}
    other = {volume["name"] for volume in template["volumes"] if not set(volume) - {"name"} <= allowed}
    # A cache on the node is the one exception; its field says that Pod Security rejects it.
    assert other == ({"model-cache"} if "model.cache.node" in some and "model.cache.claim" not in some else set())
    for container in template["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert all("hostPort" not in port for port in container["ports"])


@given(changes)
def test_the_overlay_overrides_nothing(some: dict[str, Any]) -> None:
    template = deployment(children(some))["spec"]["template"]
    env = [entry["name"] for entry in template["spec"]["containers"][0]["env"]]
    assert len(env) == len(set(env))
    assert names.labels("chat").items() <= template["metadata"]["labels"].items()


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", fullmatch=True))
def test_names_fit_and_differ_within_their_kind(name: str) -> None:
    made = [
        *render.children(resource(name=name), defaults=render.PodDefaults(IMAGE), replicas=1, token="t"),
        render.admin_secret(resource(name=name), "t"),
    ]
    keys = [(child["kind"], child["metadata"]["name"]) for child in made]
    assert len(name) <= MAX_NAME
    assert len(keys) == len(set(keys))
    assert all(len(child_name) <= 63 for _, child_name in keys)


def test_children_are_owned_so_that_deletion_needs_no_operator() -> None:
    for child in (*children(), render.admin_secret(resource(), "t")):
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (contract.KIND, "chat", "u-1", True)
        assert child["metadata"]["namespace"] == "team"


def test_without_an_api_server_the_lease_has_no_holder() -> None:
    bare = resource(uid="")
    assert all(
        "ownerReferences" not in child["metadata"]
        for child in render.children(bare, defaults=render.PodDefaults(IMAGE), replicas=1, token="t")
    )


def test_no_service_carries_the_admin_port() -> None:
    for child in children():
        if child["kind"] == "Service":
            assert [port["port"] for port in child["spec"]["ports"]] == [contract.DATA_PORT]


def test_services_and_budget_select_what_the_deployment_makes() -> None:
    made = children(CHANGES)
    labels = deployment(made)["spec"]["template"]["metadata"]["labels"]
    for child in made:
        selector = child.get("spec", {}).get("selector")
        if selector is not None:
            assert selector.get("matchLabels", selector).items() <= labels.items()
    assert names.selector_text("chat") == "app.kubernetes.io/name=sluice-engine,app.kubernetes.io/instance=chat"


def test_secrets_of_auth_are_mounted_as_directories_and_named_by_flags() -> None:
    secrets = {"apiKeysSecretRef": "chat-keys", "gatewayTokenSecretRef": "of-gateway", "tlsSecretRef": "chat-tls"}
    made = children({f"auth.{field}.name": name for field, name in secrets.items()})
    pod = deployment(made)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume.get("secret") for volume in pod["volumes"]}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    for name, secret, folder in (
        ("api-keys", "chat-keys", "/etc/sluice/keys"),
        ("gateway-token", "of-gateway", "/etc/sluice/gateway-token"),
        ("tls", "chat-tls", "/etc/sluice/tls"),
    ):
        # Optional: the engine reports a missing Secret as a condition, which a waiting pod cannot.
        assert volumes[name] == {"secretName": secret, "defaultMode": 0o440, "optional": True}
        assert mounts[name] == {"name": name, "mountPath": folder, "readOnly": True}  # no subPath: it is updated
    flags = ["--api-keys-file=/etc/sluice/keys/keys.yaml", "--tls-cert-file=/etc/sluice/tls/tls.crt"]
    flags += ["--tls-key-file=/etc/sluice/tls/tls.key", "--gateway-token-file=/etc/sluice/gateway-token/token"]
    assert set(flags) <= set(container["args"])
    probes = [container[kind]["httpGet"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert all(probe["port"] == "admin" and "scheme" not in probe for probe in probes)  # the admin port has no TLS
    services = [child for child in made if child["kind"] == "Service"]
    assert {port["appProtocol"] for child in services for port in child["spec"]["ports"]} == {"https"}


def test_the_kubelet_waits_longer_than_the_drain() -> None:
    template = deployment(children({"rollout.drainSeconds": 40}))["spec"]["template"]["spec"]
    assert template["terminationGracePeriodSeconds"] == 5 + 40 + 10
    assert "--drain-seconds=40" in template["containers"][0]["args"]


def test_host_memory_for_the_preempted_is_asked_of_the_engine_and_added_to_the_containers() -> None:
    asked = {
        "engine.kvCache.cpuOffloadGiB": 2,
        "engine.resources.requests": {"cpu": "4", "memory": "1Gi"},
        "engine.resources.limits": {"memory": "1500M"},
    }
    container = deployment(children(asked))["spec"]["template"]["spec"]["containers"][0]
    assert f"--swap-size={2 << 30}" in container["args"]
    assert container["resources"]["requests"]["memory"] == str(3 << 30)
    assert container["resources"]["limits"]["memory"] == str(1_500_000_000 + (2 << 30))
    assert container["resources"]["requests"]["cpu"] == "4"
    none = deployment(children(asked | {"engine.kvCache.cpuOffloadGiB": 0}))["spec"]["template"]["spec"]["containers"]
    assert "--swap-size=0" in none[0]["args"] and none[0]["resources"]["requests"]["memory"] == "1Gi"


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("pvc://claim", "/models"),
        ("pvc://claim/", "/models"),
        ("pvc://claim/a/b", "/models/a/b"),
        ("pvc://claim//a/", "/models/a"),
        ("file:///opt/m", "/opt/m"),
        ("hf://org/name@main", "hf://org/name@main"),
    ],
)
def test_the_model_is_where_the_uri_says(uri: str, path: str) -> None:
    assert model_path(uri) == path


def test_the_deletion_cost_touches_one_annotation() -> None:
    assert render.deletion_cost(resource(), "chat-1", -3) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "chat-1",
            "namespace": "team",
            "annotations": {"controller.kubernetes.io/pod-deletion-cost": "-3"},
        },
    }


def test_the_credentials_of_a_bucket_are_files_that_a_corrected_secret_replaces() -> None:
    asked = {"model.uri": "s3://models/qwen3", "model.credentialsSecretRef": {"name": "account"}}
    pod = deployment(children(asked))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"--fetch-errors=retry", "s3://models/qwen3"} <= set(container["args"])
    assert {"name": "SLUICE_S3_CREDENTIALS", "value": "/etc/sluice/s3"} in container["env"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["source-credentials"]["secret"]["secretName"] == "account"
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["source-credentials"] == {
        "name": "source-credentials",
        "mountPath": "/etc/sluice/s3",
        "readOnly": True,
    }


def test_a_downloaded_model_has_a_token_file_a_shared_cache_and_retries() -> None:
    token = {"name": "hub", "key": "k"}
    asked = {"model.uri": "hf://org/name", "model.tokenSecretRef": token, "model.cache.claim": "c"}
    pod = deployment(children(asked))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"--fetch-errors=retry", "--cache=/var/cache/sluice", "hf://org/name"} <= set(container["args"])
    assert {"name": "HF_TOKEN_PATH", "value": "/etc/sluice/source/token"} in container["env"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["model-cache"]["persistentVolumeClaim"] == {"claimName": "c"}
    secret = volumes["source-token"]["secret"]
    assert (secret["secretName"], secret["items"]) == ("hub", [{"key": "k", "path": "token"}])
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["source-token"]["readOnly"] and "readOnly" not in mounts["model-cache"]
