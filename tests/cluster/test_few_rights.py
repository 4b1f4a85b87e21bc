"""`sluice check` and `sluice report` by a user who may read nothing, or a part: each says what it lacks, and does the rest."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice import contract
from sluice.cli import app
from sluice_kube.api import collection
from tests.cluster import release
from tests.cluster.api_server import ApiServer
from tests.cluster.bundles import bundle
from tests.cluster.resources import in_namespace, serving

# What check reads, and words of the right that each lack must name.
READS = {
    release.DEPLOYMENTS: ("Operator", "list deployments.apps"),
    release.PODS: ("Images", "list pods"),
    release.SERVICES: ("Gateway", "list services"),
    release.ENDPOINTS: ("Gateway", "list endpointslices.discovery.k8s.io"),
    release.METRICS: ("Metrics", "services/proxy"),
    release.NODES: ("GPUs", "list nodes"),
    release.CRD: ("CRD", "read CustomResourceDefinitions"),
    "/version": ("API server", "/version"),
}
OWN = "apps"


def run(*command: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(command))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.parametrize("path", READS)
def test_each_read_that_is_refused_is_a_warning_with_the_answer_and_the_right(server: ApiServer, path: str) -> None:
    release.installed(server)
    server.objects[path] = 403
    code, text = run("check", "-o", "json")
    name, right = READS[path]
    found = {each["check"]: each for each in json.loads(text)["checks"]}
    assert (code, found[name]["state"]) == (0, "warning")
    assert "the server answers 403" in found[name]["message"] and right in found[name]["remedy"]
    assert "not installed" not in text


def test_who_may_read_nothing_is_told_so_by_each_check_and_not_that_nothing_is_installed(server: ApiServer) -> None:
    release.installed(server)
    for path in READS:
        server.objects[path] = 403
    code, text = run("check", "-o", "json")
    found = json.loads(text)["checks"]
    assert code == 0 and [each["state"] for each in found if each["check"] != "Permissions"] == ["warning"] * 8
    assert all("403" in each["message"] for each in found if each["check"] != "Permissions")
    assert "not installed" not in text


def test_a_login_that_has_ended_is_one_failure_with_its_remedy(server: ApiServer) -> None:
    server.objects["/version"] = 401
    code, text = run("check")
    assert code == contract.EXIT_FAILED and "Log in again" in text


def test_a_release_in_the_users_own_namespace_is_packed_where_no_other_may_be_read(
    server: ApiServer, tmp_path: Path
) -> None:
    server.serve(in_namespace(OWN), serving("chat"))
    for path in ("v1 pods", "apps/v1 deployments", "apps/v1 replicasets", "v1 services"):
        group, plural = path.split()
        server.objects[collection(group, plural)] = 403
        server.serve(collection(group, plural, OWN))
    pod = {"metadata": {"name": "sluice-1", "namespace": OWN, "labels": {contract.LABEL_NAME: "sluice-operator"}}}
    server.serve(collection("v1", "pods", OWN), pod)
    server.serve(collection("v1", "events", OWN))
    code, text = run("report", "-n", OWN, "-f", str(tmp_path / "r.tar.gz"))
    assert code == 0
    assert [each["metadata"]["name"] for each in json.loads(bundle(tmp_path / "r.tar.gz")["pods.json"])] == ["sluice-1"]
    lacks = [line for line in text.splitlines() if line.startswith("not contained: ")]
    assert any("/api/v1/pods" in line for line in lacks) and len(lacks) == len(set(lacks))


def test_a_bundle_of_nothing_says_so_and_fails(server: ApiServer, tmp_path: Path) -> None:
    for path in (
        "v1 pods",
        "apps/v1 deployments",
        "apps/v1 replicasets",
        "v1 services",
        "networking.k8s.io/v1 networkpolicies",
    ):
        for namespace in ("", OWN):
            group, plural = path.split()
            server.objects[collection(group, plural, namespace)] = 403
    server.objects |= {in_namespace(OWN): 403, "/version": 403}
    code, text = run("report", "-n", OWN, "-f", str(tmp_path / "r.tar.gz"))
    assert code == contract.EXIT_FAILED and "Nothing could be read" in text
    assert json.loads(bundle(tmp_path / "r.tar.gz")["summary.json"])["faults"]
