"""What holds for the chart: its sources, and what Helm renders where it is installed (the e2e suite installs it)."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from typer.main import get_command

from sluice import contract
from sluice.cli import app
from sluice.logs import ENV_FORMAT, ENV_LEVEL, FORMATS, LEVELS
from sluice_operator.api.auth import Auth
from sluice_operator.cluster.kinds import GROUPS
from sluice_operator.render.access.auth import mounted_secrets, secret_flags
from sluice_operator.settings import PodMonitorSettings, from_environment

CHART = Path(__file__).parents[2] / "charts/sluice"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = (CHART / "values.yaml").read_text()
POLICY = yaml.safe_load(VALUES)["networkPolicy"]
HELPERS = (CHART / "templates/_helpers.tpl").read_text()
RBAC = (CHART / "templates/rbac.yaml").read_text()
DEPLOYMENT = (CHART / "templates/deployment.yaml").read_text()
GATEWAY = (CHART / "templates/gateway/deployment.yaml").read_text()
GATEWAY_RBAC = (CHART / "templates/gateway/rbac.yaml").read_text()


def operator_rules() -> list[dict[str, Any]]:
    block = re.search(r'define "sluice\.rules" -\}\}\n(.*?)\{\{- end', HELPERS, re.DOTALL)
    assert block is not None
    rules: list[dict[str, Any]] = yaml.safe_load(block.group(1))
    return rules


def verbs(resource: str) -> set[str]:
    return {verb for rule in operator_rules() if resource in rule["resources"] for verb in rule["verbs"]}


def test_no_right_is_a_wildcard() -> None:
    assert "*" not in (RBAC + GATEWAY_RBAC).replace("{{- /*", "").replace("*/ -}}", "")
    assert all("*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]] for rule in operator_rules())


def test_secrets_are_made_and_neither_read_nor_changed() -> None:
    assert verbs("secrets") == {"create"}


def test_three_secrets_can_be_read_by_their_names_in_the_operators_own_namespace() -> None:
    rules = re.findall(r"resources: \[secrets\]\n(?:    resourceNames: \[(.*)\]\n)?    verbs: \[(.*?)\]", RBAC)
    changed = "{{ $name }}-keyring, {{ $name }}-read"
    assert rules == [("{{ $name }}-key", "get"), (changed, "get, patch"), ("", "create")]
    role = next(each for each in RBAC.split("\n---\n") if "resources: [secrets]" in each)
    assert "kind: Role\n" in role and "namespace: {{ .Release.Namespace | quote }}" in role
    assert all(f'{{{{ include "sluice.fullname" . }}}}-{name}\n' in DEPLOYMENT for name in ("key", "keyring"))
    assert '{{ include "sluice.fullname" . }}-read' in DEPLOYMENT and "}}-read\n" in GATEWAY


def test_of_the_resource_only_the_status_is_written() -> None:
    assert verbs("llmdeployments") == {"get", "list", "watch"}
    assert verbs("llmdeployments/status") == {"patch"}


def test_every_kind_that_the_operator_works_with_can_be_read_and_made() -> None:
    for kind, (_, _, plural) in GROUPS.items():
        if kind in {"Namespace", "Pod", "Secret", "ReplicaSet", "Lease", "Event", contract.KIND}:
            continue
        assert {"get", "create"} <= verbs(plural), kind
    assert {"list", "watch", "patch", "delete"} <= verbs("pods")
    assert verbs("replicasets") == {"list", "watch"}
    assert verbs("configmaps") == {"get", "list", "watch", "create", "patch"}


def test_no_role_allows_exec_or_grants_permissions() -> None:
    named = {resource for rule in operator_rules() for resource in rule["resources"]}
    assert not {"pods/exec", "roles", "clusterroles", "rolebindings", "nodes"} & named
    assert not any("admissionregistration" in group for rule in operator_rules() for group in rule["apiGroups"])


def test_the_defaults_fit_their_schema() -> None:
    jsonschema_rs.validate(SCHEMA, yaml.safe_load(VALUES))


@pytest.mark.parametrize(
    "wrong",
    [
        {"intervalSeconds": 0},
        {"networkPolicy": POLICY | {"metricsFrom": [{}]}},
        {"networkPolicy": POLICY | {"egress": {}}},
        {"watchNamespace": "Not A Name"},
        {"watchNamespaces": ["Not A Name"]},
        {"image": {"repository": ""}},
        {"podIds": "Root"},
        {"upgrades": {"maxConcurrent": 0}},
        {"acceleratorBudget": "nvidia.com/gpu"},
        {"acceleratorBudget": "nvidia.com/gpu=8,,"},
        {"log": {"level": "chatty", "format": "json"}},
        {"metrics": {"auth": "none"}},
        {"unknown": 1},
    ],
    ids=str,
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(SCHEMA, {**yaml.safe_load(VALUES), **wrong})


def test_every_value_is_used() -> None:
    templates = "\n".join(path.read_text() for path in sorted((CHART / "templates").rglob("*.*")))
    for name, value in yaml.safe_load(VALUES).items():
        assert f".Values.{name}" in templates, name
        for inner in value if isinstance(value, dict) and name not in {"image", "resources"} else ():
            assert f".Values.{name}.{inner}" in templates, f"{name}.{inner}"


def test_the_operator_reads_what_the_chart_sets() -> None:
    given = dict(re.findall(r"- name: (SLUICE_\w+)\n +value: (.*)", DEPLOYMENT))
    settings = from_environment(
        {
            "SLUICE_ENGINE_IMAGE": "a/b:c",
            "SLUICE_ENGINE_IMAGES": '{"nvidia.com/gpu": "a/cuda:c"}',
            "SLUICE_POD_IDS": "Cluster",
            "SLUICE_ACCELERATOR_BUDGET": "nvidia.com/gpu=8",
            "SLUICE_MAX_UPGRADES": "3",
            "SLUICE_NAMESPACE": "team",
            "SLUICE_INTERVAL_SECONDS": "7",
            "SLUICE_HUB_ENDPOINT": "http://hub",
            "SLUICE_METRICS_RESOURCES": "7",
            "SLUICE_KEY_SECRET": "k",
            "SLUICE_KEYRING_SECRET": "ring",
            "SLUICE_METRICS_AUTH": "token",
            "SLUICE_READ_SECRET": "r",
            "SLUICE_LEASE_NAME": "blue",
            "SLUICE_GATEWAY_SERVICE": "gw",
            "SLUICE_GATEWAY_URL": "http://gw.sluice:80",
            "SLUICE_NETWORK_PEERS": '{"admin": [{"podSelector": {}}], "data": [], "namespaceClients": "TLS", "egress": null}',
            "SLUICE_POD_MONITOR": '{"labels": {"release": "prometheus"}, "intervalSeconds": 30}',
        }
    )
    names = {
        "ENGINE_IMAGE",
        "ENGINE_IMAGES",
        "POD_IDS",
        "ACCELERATOR_BUDGET",
        "MAX_UPGRADES",
        "NAMESPACE",
        "INTERVAL_SECONDS",
        "HUB_ENDPOINT",
        "METRICS_RESOURCES",
        "PROFILE",
        *("LOG_LEVEL", "LOG_FORMAT", "KEY_SECRET", "KEYRING_SECRET"),
        "METRICS_AUTH",
        "READ_SECRET",
        "LEASE_NAME",
        *("GATEWAY_SERVICE", "GATEWAY_URL"),
        "NETWORK_PEERS",
        "POD_MONITOR",
    }
    assert set(given) == {f"SLUICE_{name}" for name in names}
    assert (settings.engine_image, settings.namespaces, settings.interval) == ("a/b:c", ("team",), 7.0)
    assert settings.engine_images == (("nvidia.com/gpu", "a/cuda:c"),)
    assert (settings.pod_ids, settings.max_upgrades, settings.metrics_resources) == ("Cluster", 3, 7)
    assert (settings.hub_endpoint, settings.accelerator_budget) == ("http://hub", "nvidia.com/gpu=8")
    assert (settings.key_secret, settings.lease_name, settings.gateway_service) == ("k", "blue", "gw")
    assert (settings.metrics_auth, settings.read_secret, settings.gateway_url) == ("token", "r", "http://gw.sluice:80")
    assert settings.keyring_secret == "ring"
    assert settings.network_peers is not None
    assert settings.pod_monitor == PodMonitorSettings(labels=(("release", "prometheus"),), interval_seconds=30)
    assert f"containerPort: {settings.health_port}" in DEPLOYMENT


@pytest.mark.parametrize(
    "line",
    [
        "runAsNonRoot: true",
        "allowPrivilegeEscalation: false",
        "readOnlyRootFilesystem: true",
        "capabilities: {drop: [ALL]}",
        "seccompProfile: {type: RuntimeDefault}",
        "automountServiceAccountToken: false",
    ],
)
def test_the_pods_of_the_chart_are_restricted(line: str) -> None:
    assert line in DEPLOYMENT
    assert line in GATEWAY


def test_the_crd_is_a_copy_and_stays_on_uninstall() -> None:
    generated = CHART.parents[1] / "crds/sluice.dev_llmdeployments.yaml"
    assert (CHART / "files" / generated.name).read_text() == generated.read_text()
    assert "helm.sh/resource-policy" in (CHART / "templates/crd.yaml").read_text()
    assert yaml.safe_load(VALUES)["crds"] == {"install": True, "keep": True}


# What the CRD and the children use, and the first Kubernetes version whose API server accepts it by default.
NEEDS = {
    "oldSelf": (1, 25),  # transition rules
    "unhealthyPodEvictionPolicy": (1, 27),
    "quantity(": (1, 29),  # in CEL's library since 1.28; a new CRD may use what the version before had
}


def test_readme_and_chart_name_the_kubernetes_version_that_is_needed() -> None:
    sources = [
        CHART / "files/sluice.dev_llmdeployments.yaml",
        *(CHART.parents[1] / "operator/sluice_operator/render").glob("*.py"),
    ]
    text = "".join(path.read_text() for path in sources)
    assert all(feature in text for feature in NEEDS), "a feature is gone: take it from the table"
    needed = "{}.{}".format(*max(NEEDS.values()))
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"] == f">={needed}.0-0"
    readme = (CHART.parents[1] / "README.md").read_text()
    assert re.findall(r"Kubernetes (\d\.\d+) or newer", readme) == [needed]


def rendered(release: str, *options: str) -> list[dict[str, Any]]:
    """What Helm makes of the chart for a release in namespace `team`."""
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    command = [helm, "template", release, str(CHART), "--namespace", "team", "--kube-version", "1.34.0", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def named(objects: list[dict[str, Any]], kind: str, component: str) -> list[dict[str, Any]]:
    """The objects of a kind that belong to `operator` or `gateway`."""
    name = f"sluice-{component}"
    return [one for one in objects if one["kind"] == kind and one["metadata"]["labels"][contract.LABEL_NAME] == name]


def lease_of(objects: list[dict[str, Any]]) -> str:
    """The Lease that the release's operator is told to hold; its role allows exactly that one."""
    (deployment,) = named(objects, "Deployment", "operator")
    environment = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    (name,) = (one["value"] for one in environment if one["name"] == "SLUICE_LEASE_NAME")
    rules = [
        rule for each in objects if each["kind"] == "Role" for rule in each["rules"] if rule["resources"] == ["leases"]
    ]
    assert {verb: rule.get("resourceNames") for rule in rules for verb in rule["verbs"]} == {
        "create": None,
        "get": [name],
        "update": [name],
    }
    return str(name)


def test_two_releases_in_one_namespace_hold_two_leases() -> None:
    blue, green = (lease_of(rendered(release, "--set", f"watchNamespace={release}")) for release in ("blue", "green"))
    assert (blue, green) == ("blue-sluice", "green-sluice")


def test_the_gateway_may_list_and_watch_two_kinds_and_nothing_else() -> None:
    """Without Helm too: every verb and resource that its roles name, and the operator's of the gateway's endpoints."""
    assert set(re.findall(r"verbs: \[(.*)\]", GATEWAY_RBAC)) == {"list, watch"}
    assert set(re.findall(r"resources: \[(.*)\]", GATEWAY_RBAC)) == {"llmdeployments", "endpointslices"}


def test_the_gateway_runs_by_options_that_the_command_has() -> None:
    options = re.findall(r"- (--[a-z-]+)", GATEWAY)
    parameters = get_command(app).commands["gateway"].params  # type: ignore[attr-defined]
    known = {option for parameter in parameters for option in parameter.opts}
    assert len(options) == 14 and set(options) <= known
    assert f"containerPort: {contract.GATEWAY_ADMIN_PORT}" in GATEWAY
    assert f"--admin-port={contract.GATEWAY_ADMIN_PORT}" in GATEWAY


def test_the_gateways_drain_ends_before_the_kubelet_kills() -> None:
    grace = re.search(r"terminationGracePeriodSeconds: \{\{ add (\d+) \.Values\.gateway\.drainSeconds", GATEWAY)
    assert grace is not None and int(grace[1]) >= contract.DRAIN_GRACE_SECONDS + 10


@pytest.mark.parametrize(
    ("options", "fixed"),
    [
        ((), True),
        (("--api-versions", "security.openshift.io/v1"), False),
        (("--set", "podIds=Cluster"), False),
        (("--set", "podIds=Fixed", "--api-versions", "security.openshift.io/v1"), True),
    ],
)
def test_ids_are_left_out_where_the_cluster_assigns_them(options: tuple[str, ...], fixed: bool) -> None:
    objects = rendered("blue", *options)
    for component in ("operator", "gateway"):
        (deployment,) = named(objects, "Deployment", component)
        security = deployment["spec"]["template"]["spec"]["securityContext"]
        ids = {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532} if fixed else {}
        assert security == {"runAsNonRoot": True, **ids, "seccompProfile": {"type": "RuntimeDefault"}}
    (operator,) = named(objects, "Deployment", "operator")
    environment = operator["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "SLUICE_POD_IDS", "value": "Fixed" if fixed else "Cluster"} in environment


def test_a_release_has_two_operators_that_are_spread_and_never_evicted_together() -> None:
    objects = rendered("blue")
    (operator,) = named(objects, "Deployment", "operator")
    (budget,) = named(objects, "PodDisruptionBudget", "operator")
    template = operator["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert operator["spec"]["replicas"] == 2
    assert operator["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    spread = template["spec"]["topologySpreadConstraints"]
    assert {each["topologyKey"] for each in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    assert all(each["labelSelector"]["matchLabels"].items() <= labels.items() for each in spread)
    assert named(rendered("blue", "--set", "replicaCount=1"), "PodDisruptionBudget", "operator") == []


@pytest.mark.parametrize("options", [(), ("--set", "watchNamespace=apps")])
def test_a_release_has_two_gateways_and_the_operator_knows_their_service(options: tuple[str, ...]) -> None:
    objects = rendered("blue", *options)
    (gateway,) = named(objects, "Deployment", "gateway")
    (service,) = named(objects, "Service", "gateway")
    (budget,) = named(objects, "PodDisruptionBudget", "gateway")
    labels = gateway["spec"]["template"]["metadata"]["labels"]
    assert gateway["spec"]["replicas"] == 2
    for selector in (service["spec"]["selector"], budget["spec"]["selector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    (operator,) = named(objects, "Deployment", "operator")
    assert not operator["spec"]["selector"]["matchLabels"].items() <= labels.items()
    environment = {
        one["name"]: one.get("value") for one in operator["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert environment["SLUICE_GATEWAY_SERVICE"] == service["metadata"]["name"] == "blue-sluice-gateway"
    roles = [*named(objects, "Role", "gateway"), *named(objects, "ClusterRole", "gateway")]
    where = [(role["kind"], role["metadata"].get("namespace")) for role in roles]
    assert where == ([("Role", "apps")] if options else [("ClusterRole", None)])
    arguments = gateway["spec"]["template"]["spec"]["containers"][0]["args"]
    assert ("--namespace=apps" in arguments, "--all-namespaces" in arguments) == (bool(options), not options)


def test_the_gateways_secrets_are_mounted_where_its_options_name_their_files() -> None:
    """Without Helm too."""
    for option, folder, file in (
        ("api-keys-file", contract.API_KEYS_MOUNT, contract.API_KEYS_FILE),
        ("engine-token-file", contract.GATEWAY_TOKEN_MOUNT, contract.GATEWAY_TOKEN_FILE),
        ("read-key-file", contract.READ_TOKEN_MOUNT, contract.READ_KEY),
    ):
        assert f"- --{option}={folder}/{file}\n" in GATEWAY
        assert len(re.findall(rf"mountPath: {folder}, readOnly: true", GATEWAY)) == 1


def test_gateway_and_engines_have_the_key_file_and_one_token_at_the_same_paths() -> None:
    values = ("--set", "gateway.apiKeysSecret=team-keys", "--set", "gateway.engineTokenSecret=gateway-token")
    (gateway,) = named(rendered("blue", *values), "Deployment", "gateway")
    pod = gateway["spec"]["template"]["spec"]
    arguments = set(pod["containers"][0]["args"])
    folders = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    named_by = {"apiKeysSecretRef": "team-keys", "gatewayTokenSecretRef": "gateway-token"}
    auth = Auth.model_validate({field: {"name": name} for field, name in named_by.items()})
    expected = {one.volume: one.secret for one in mounted_secrets(auth)}
    assert expected | {"read-key": "blue-sluice-read"} == secrets
    assert {one.volume: one.folder for one in mounted_secrets(auth)}.items() <= folders.items()
    assert "--service=team/blue-sluice-gateway" in arguments
    files = secret_flags(auth)
    assert f"--api-keys-file={files['api-keys-file']}" in arguments
    assert f"--engine-token-file={files['gateway-token-file']}" in arguments


def test_a_gateway_without_keys_mounts_no_secret_of_a_user_and_one_with_a_token_alone_is_refused() -> None:
    (gateway,) = named(rendered("blue"), "Deployment", "gateway")
    pod = gateway["spec"]["template"]["spec"]
    assert "--service=team/blue-sluice-gateway" in pod["containers"][0]["args"]  # zones need no keys
    secrets = [each["secret"] for each in pod["volumes"] if "secret" in each]
    assert [(each["secretName"], each.get("optional", False)) for each in secrets] == [("blue-sluice-read", False)]
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered("blue", "--set", "gateway.engineTokenSecret=gateway-token")
    assert "needs gateway.apiKeysSecret" in refused.value.stderr


def test_a_release_without_a_gateway_has_none_of_its_objects() -> None:
    objects = rendered("blue", "--set", "gateway.enabled=false")
    assert "blue-sluice-gateway" not in {each["metadata"]["name"] for each in objects}
    (operator,) = named(objects, "Deployment", "operator")
    environment = operator["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "SLUICE_GATEWAY_SERVICE", "value": ""} in environment


def test_the_chart_sets_log_and_profile_by_names_that_the_commands_read() -> None:
    """Without Helm too; the operator's Deployment is compared with its settings above."""
    for template in (DEPLOYMENT, GATEWAY):
        assert ENV_LEVEL in template and ENV_FORMAT in template
    (profile,) = (each for each in get_command(app).commands["operator"].params if each.name == "profile")  # type: ignore[attr-defined]
    assert profile.envvar == "SLUICE_PROFILE"
    assert set(SCHEMA["properties"]["log"]["properties"]["level"]["enum"]) == set(LEVELS)
    assert set(SCHEMA["properties"]["log"]["properties"]["format"]["enum"]) <= set(FORMATS)


def test_the_chart_names_the_lease_by_the_release() -> None:
    """The same without Helm: the operator's setting and the role's right come from one template."""
    assert re.search(r'SLUICE_LEASE_NAME\n +value: \{\{ include "sluice.fullname" \. \| quote \}\}', DEPLOYMENT)
    assert '{{- $name := include "sluice.fullname" . }}' in RBAC
    assert re.search(r"\[leases\]\n +resourceNames: \[\{\{ \$name \| quote \}\}\]\n +verbs: \[get, update\]", RBAC)
