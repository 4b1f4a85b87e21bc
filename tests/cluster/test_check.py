"""`sluice check` against an API server: before an installation, after it, and with each fault that it must find."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sluice import __version__, contract
from sluice.cli import app
from sluice.cluster.checks.crd_version import compare
from sluice.cluster.checks.permissions import CREATED, Permission, needed
from sluice.commands.crds import crd_text
from sluice_kube import api
from sluice_kube.errors import ClusterError
from tests.cluster import release
from tests.cluster.api_server import ApiServer

CHART = Path(__file__).parents[2] / "charts/sluice/templates"
SCHEMA: dict[str, Any] = yaml.safe_load(crd_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def check(*arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code, and the results by check."""
    result = CliRunner().invoke(app, ["check", "-o", "json", *arguments])
    found = json.loads(result.output)
    assert found["ok"] == (result.exit_code == 0)
    return result.exit_code, {each["check"]: each for each in found["checks"]}


def test_a_working_release_passes_every_check(server: ApiServer) -> None:
    release.installed(server)
    result = CliRunner().invoke(app, ["check"])
    assert (result.exit_code, result.output.splitlines()) == (
        0,
        [
            "ok       API server: Kubernetes 1.34.1 answers.",
            "ok       Permissions: You may install and upgrade the chart.",
            f"ok       CRD: It is of version {__version__}.",
            "ok       GPUs: The nodes advertise 4 × nvidia.com/gpu.",
            "ok       Operator: Deployment sluice-system/sluice is available.",
            f"ok       Versions: Operator, gateway and engine images have version {__version__}.",
            "ok       Images: No pod waits for its image.",
            "ok       Gateway: Service sluice-system/sluice-gateway has 1 ready endpoint.",
            "ok       Metrics: Service sluice-system/sluice-metrics answers with the",
            "           operator's metrics.",
            "0 failures, 0 warnings",
        ],
    )
    assert {each.split()[0] for each in server.asked} == {"GET", "POST"}
    assert all("selfsubjectaccessreviews" in each for each in server.asked if each.startswith("POST"))


def test_before_an_installation_there_are_warnings_and_no_failure(server: ApiServer) -> None:
    release.empty_cluster(server)
    code, found = check()
    assert code == 0
    assert {name: each["state"] for name, each in found.items()} == {
        "API server": "ok",
        "Permissions": "ok",
        "CRD": "warning",
        "GPUs": "ok",
        "Operator": "warning",
        "Versions": "warning",
        "Images": "warning",
        "Gateway": "warning",
        "Metrics": "warning",
    }
    assert "helm install sluice" in found["Operator"]["remedy"]


def set_accelerator_images(server: ApiServer, value: str) -> None:
    operator = server.objects[release.DEPLOYMENTS]["items"][0]
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    container["env"].append({"name": "SLUICE_ENGINE_IMAGES", "value": value})


def no_operator_available(server: ApiServer) -> None:
    operator = server.objects[release.DEPLOYMENTS]["items"][0]
    operator["status"]["conditions"][0] |= {"status": "False", "message": "no replica is up"}


def old_image(server: ApiServer) -> None:
    operator = server.objects[release.DEPLOYMENTS]["items"][0]
    operator["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = "host:5000/engine:0.0.9"


def old_digest(server: ApiServer) -> None:
    gateway = server.objects[release.DEPLOYMENTS]["items"][1]
    gateway["metadata"]["labels"]["app.kubernetes.io/version"] = "0.0.8"
    gateway["spec"]["template"]["spec"]["containers"][0]["image"] = "host:5000/operator@sha256:1f"


def old_crd(server: ApiServer) -> None:
    crd = server.objects[release.CRD]
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["auth"]


def no_image(server: ApiServer) -> None:
    waiting = {"image": "host:5000/engine:0.0.9", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    starting = {"image": "e:1", "state": {"waiting": {"reason": "ContainerCreating"}}}
    pod = {
        "metadata": release.named("chat-1", contract.ENGINE_APP),
        "status": {"containerStatuses": [starting, waiting]},
    }
    server.serve(release.PODS, pod)


def old_accelerator_image(server: ApiServer) -> None:
    images = {"nvidia.com/gpu": f"engine-cuda:{__version__}", "nvidia.com/mig-1g.5gb": "host:5000/engine-cuda:0.0.7"}
    set_accelerator_images(server, json.dumps(images))


def no_endpoint(server: ApiServer) -> None:
    server.objects[release.ENDPOINTS]["items"][0]["endpoints"][0]["conditions"]["ready"] = False


FAULTS: list[tuple[Callable[[ApiServer], None], str, str, str]] = [
    (no_operator_available, "Operator", "no replica is up", "kubectl describe deployment sluice -n sluice-system"),
    (old_image, "Versions", "host:5000/engine:0.0.9", "Upgrade the chart"),
    (old_digest, "Versions", "host:5000/operator@sha256:1f (0.0.8)", "Upgrade the chart"),
    (old_accelerator_image, "Versions", "host:5000/engine-cuda:0.0.7", "Upgrade the chart"),
    (old_crd, "CRD", "it differs in spec.auth", "sluice crds | kubectl apply"),
    (lambda server: server.objects.update({release.CRD: 404}), "CRD", "is not installed", "sluice crds | kubectl"),
    (no_image, "Images", "sluice-system/chat-1: host:5000/engine:0.0.9 is not pulled", "pull secret"),
    (no_endpoint, "Gateway", "has no ready endpoint", "kubectl describe deployment sluice-gateway"),
    (lambda server: server.objects.update({release.METRICS: 503}), "Metrics", "503", "NetworkPolicies"),
    (lambda server: server.objects.update({release.METRICS: "up 1\n"}), "Metrics", "answers without", "selects"),
    (lambda server: server.objects.update({"/version": {"gitVersion": "v1.27.3"}}), "API server", "1.27.3", "1.29"),
]


@pytest.mark.parametrize("value", ["", "{}", f'{{"nvidia.com/gpu": "engine-cuda:{__version__}"}}', "no JSON", "[1]"])
def test_accelerator_images_of_this_version_and_unreadable_ones_are_no_fault(server: ApiServer, value: str) -> None:
    release.installed(server)
    set_accelerator_images(server, value)
    assert check()[1]["Versions"]["state"] == "ok"


@pytest.mark.parametrize(("fault", "name", "words", "remedy"), FAULTS)
def test_each_fault_fails_its_own_check_with_a_remedy(
    server: ApiServer, fault: Callable[[ApiServer], None], name: str, words: str, remedy: str
) -> None:
    release.installed(server)
    fault(server)
    code, found = check()
    assert code == contract.EXIT_FAILED
    assert {each["check"] for each in found.values() if each["state"] == "failure"} == {name}
    assert words in found[name]["message"] and remedy in found[name]["remedy"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (release.NODES, "GPUs"),
        (release.PODS, "Images"),
        (release.CRD, "CRD"),
        (release.METRICS, "Metrics"),
        (release.ENDPOINTS, "Gateway"),
        (release.SERVICES, "Gateway"),
    ],
)
def test_what_may_not_be_read_is_a_warning_that_names_the_right(server: ApiServer, path: str, name: str) -> None:
    release.installed(server)
    server.objects[path] = 403
    code, found = check()
    assert (code, found[name]["state"]) == (0, "warning")
    assert "right" in found[name]["remedy"]


def test_metrics_behind_a_network_policy_are_a_warning_that_names_the_value(server: ApiServer) -> None:
    release.installed(server)
    server.objects[release.METRICS] = 503
    operator = server.objects[release.DEPLOYMENTS]["items"][0]
    peers = {"name": "SLUICE_NETWORK_PEERS", "value": '{"admin": []}'}
    operator["spec"]["template"]["spec"]["containers"][0]["env"].append(peers)
    code, found = check()
    assert (code, found["Metrics"]["state"]) == (0, "warning")
    assert "networkPolicy.metricsFrom" in found["Metrics"]["remedy"]


def test_metrics_that_need_a_token_are_read_with_that_of_the_release(server: ApiServer) -> None:
    release.installed(server)
    release.asks_for(server, "r34d")
    assert check()[1]["Metrics"]["state"] == "ok"
    server.objects[release.READ_SECRET] = 403
    code, found = check()
    assert (code, found["Metrics"]["state"]) == (0, "warning")
    assert "secrets/sluice-read" in found["Metrics"]["message"] and "Secret" in found["Metrics"]["remedy"]


def test_a_cluster_without_a_gpu_is_warned_about(server: ApiServer) -> None:
    release.installed(server)
    server.serve(release.NODES, {"metadata": {"name": "a"}, "status": {"allocatable": {"nvidia.com/gpu": "0"}}})
    code, found = check()
    assert (code, found["GPUs"]["state"]) == (0, "warning")
    assert "device plugin" in found["GPUs"]["remedy"]


def test_a_missing_permission_fails_before_the_installation_and_warns_after_it(server: ApiServer) -> None:
    server.denied = {("apiextensions.k8s.io/customresourcedefinitions", "create"), ("/secrets", "get")}
    release.empty_cluster(server)
    code, found = check()
    assert (code, found["Permissions"]["state"]) == (1, "failure")
    assert found["Permissions"]["message"] == (
        "You may not create customresourcedefinitions.apiextensions.k8s.io, get secrets."
    )
    release.installed(server)
    assert check()[1]["Permissions"]["state"] == "warning"


def test_an_api_server_that_does_not_answer_is_a_failure_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect() -> None:
        raise ClusterError("no cluster to talk to")

    monkeypatch.setattr(api, "connect", connect)
    code, found = check()
    assert code == contract.EXIT_FAILED
    assert found["API server"]["message"] == "no cluster to talk to"
    assert "KUBECONFIG" in found["API server"]["remedy"]


def test_the_permissions_are_those_of_the_charts_roles() -> None:
    granted = set()
    for file in ("_helpers.tpl", "rbac.yaml", "gateway/rbac.yaml"):
        rule = r"- apiGroups: \[(.*)\]\n +resources: \[(.*)\]\n(?: +resourceNames: \[(.*)\]\n)? +verbs: \[(.*?)\]"
        for groups, resources, names, verbs in re.findall(rule, (CHART / file).read_text()):
            for resource in resources.split(", "):
                for verb in verbs.split(", "):
                    granted.add((groups.strip('"'), resource, verb, bool(names)))
    assert len(granted) > 30
    created = {Permission(group, resource, "create") for group, resource in CREATED}
    listed = {(each.group, each.resource, each.verb, bool(each.name)) for each in needed() if each not in created}
    assert listed - granted == set()
    assert granted - listed <= {(each.group, each.resource, each.verb, False) for each in created}


# Made only where the cluster has the kind, where a value asks for dashboards, or by `helm test`: no install fails without.
ON_DEMAND = {"PodMonitor", "ServiceMonitor", "PrometheusRule", "ConfigMap", "Job"}


def test_the_created_kinds_are_those_of_the_charts_templates() -> None:
    texts = [path.read_text() for path in CHART.rglob("*.yaml")]
    kinds = {kind for text in texts for kind in re.findall(r"^kind: (\w+)$", text, re.MULTILINE)}
    kinds |= {kind for text in texts for kind in re.findall(r'ternary "(\w+)" "\w+" }}$', text, re.MULTILINE)}
    kinds |= {"CustomResourceDefinition"}
    assert kinds > ON_DEMAND
    kinds -= ON_DEMAND
    assert {re.sub("ys$", "ies", f"{kind.lower()}s") for kind in kinds} == {resource for _, resource in CREATED}


@pytest.mark.parametrize(
    ("annotations", "owner"),
    [
        ({}, "it was not installed by Helm"),
        (
            {"meta.helm.sh/release-name": "blue", "meta.helm.sh/release-namespace": "models"},
            "release models/blue of Helm has kept it",
        ),
    ],
)
def test_a_crd_without_an_operator_is_a_warning_that_says_how_helm_adopts_it(
    server: ApiServer, annotations: dict[str, str], owner: str
) -> None:
    release.empty_cluster(server)
    crd = yaml.safe_load(crd_text())
    crd["metadata"]["annotations"] = annotations
    server.objects[release.CRD] = crd
    code, found = check()
    assert (code, found["CRD"]["state"]) == (0, "warning")
    assert owner in found["CRD"]["message"]
    assert "--take-ownership" in found["CRD"]["remedy"]


def test_a_crd_is_compared_by_its_fields_values_and_rules() -> None:
    assert compare(SCHEMA, SCHEMA) == compare({}, {})
    changed = yaml.safe_load(yaml.safe_dump(SCHEMA))
    spec = changed["properties"]["spec"]
    spec["properties"]["scaling"]["properties"]["mode"]["enum"].remove("Advise")
    spec["properties"]["future"] = {"type": "string"}
    changed["x-kubernetes-validations"] = []
    found = compare(changed, SCHEMA)
    assert found.missing == ("spec.scaling.mode", "the resource")
    assert found.unknown == ("spec.future",)
