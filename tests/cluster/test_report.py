"""`sluice report` against an API server full of planted secrets: none of them is in the bundle, and no Secret is read."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sluice import __version__, contract
from sluice.cli import app
from sluice_kube.api import collection
from tests.cluster import release
from tests.cluster.api_server import ApiServer
from tests.cluster.bundles import bundle
from tests.cluster.resources import failing, in_namespace

PLANTED = {
    "env": "plain-horse-battery",
    "argument": "plain-staple",
    "printed": "sk-LkJS8cb0pcGxKOAKye8FrNF-n5PK0IcaBg",
    "status": "hf_abcdefghijklmnopqrst",
    "event": "hunter2hunter2",
    "annotation": "last-applied-value",
    "secret": "c2VjcmV0LW9mLWEtc2VjcmV0",
}
SECRETS = collection("v1", "secrets", "apps")
PODS = collection("v1", "pods", "apps")
LOG = f"{PODS}/chat-1/log"


def pod(name: str, namespace: str, app_name: str, restarts: int = 0) -> dict[str, Any]:
    secret_ref = {"secretKeyRef": {"name": "chat-secrets", "key": "token"}}
    container = {
        "name": "engine",
        "args": ["serve", "--api-key", PLANTED["argument"]],
        "env": [{"name": "WEBHOOK_SECRET", "value": PLANTED["env"]}, {"name": "HF_TOKEN", "valueFrom": secret_ref}],
    }
    state = {"name": "engine", "image": f"e:{__version__}", "imageID": "e@sha256:ab", "restartCount": restarts}
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": PLANTED["annotation"]}
    labels = {contract.LABEL_NAME: app_name, contract.LABEL_INSTANCE: "chat"}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels, "annotations": annotations},
        "spec": {"containers": [container]},
        "status": {"containerStatuses": [state]},
    }


@pytest.fixture
def planted(server: ApiServer) -> ApiServer:
    release.installed(server)
    message = f"The hub refuses {PLANTED['status']}."
    server.serve(in_namespace("apps"), failing("chat", "ModelAccessDenied", message))
    server.serve(PODS, pod("chat-1", "apps", contract.ENGINE_APP, restarts=2))
    operator = pod("sluice-1", release.NAMESPACE, "sluice-operator")
    server.serve(collection("v1", "pods"), operator)
    policies = ("networking.k8s.io/v1", "networkpolicies")
    for group, plural in (("apps/v1", "deployments"), ("apps/v1", "replicasets"), ("v1", "services"), policies):
        server.serve(collection(group, plural, "apps"))
    server.serve(collection("apps/v1", "replicasets"))
    server.serve(collection(*policies))
    event = {"metadata": {"name": "e"}, "message": f"password={PLANTED['event']}", "involvedObject": {"name": "chat-1"}}
    other = {"metadata": {"name": "o"}, "message": "unrelated", "involvedObject": {"name": "somewhere-else"}}
    server.serve(collection("v1", "events", "apps"), event, other)
    server.serve(collection("v1", "events", release.NAMESPACE))
    server.serve(SECRETS, {"metadata": {"name": "chat-secrets"}, "data": {"token": PLANTED["secret"]}})
    server.objects[LOG] = f"serving\ncalled with {PLANTED['printed']} and {PLANTED['env']}\nended\n"
    server.objects[f"/api/v1/namespaces/{release.NAMESPACE}/pods/sluice-1/log"] = "reconciled\n"
    return server


def report(file: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["report", "-n", "apps", "--file", str(file), *options])
    return result.exit_code, result.output


def test_no_planted_secret_is_in_the_bundle_and_no_secret_is_read(planted: ApiServer, tmp_path: Path) -> None:
    code, _ = report(tmp_path / "r.tar.gz")
    text = "\n".join(bundle(tmp_path / "r.tar.gz").values())
    assert code == 0
    assert [name for name, secret in PLANTED.items() if secret in text] == []
    assert not any("/secrets" in each for each in planted.asked)
    assert "reconciled" in text and "chat-secrets" in text  # logs, and the reference to a Secret, are there


def test_the_token_of_reads_is_used_by_the_checks_and_is_not_in_the_bundle(planted: ApiServer, tmp_path: Path) -> None:
    release.asks_for(planted, "r34d-t0ken")
    code, _ = report(tmp_path / "r.tar.gz")
    found = bundle(tmp_path / "r.tar.gz")
    checks = {each["check"]: each["state"] for each in json.loads(found["checks.json"])["checks"]}
    assert (code, checks["Metrics"]) == (0, "ok")
    assert not any("r34d-t0ken" in text for text in found.values())
    assert {each for each in planted.asked if "/secrets" in each} == {f"GET {release.READ_SECRET}"}


def test_the_bundle_holds_resources_pods_events_checks_versions_and_logs(planted: ApiServer, tmp_path: Path) -> None:
    file = tmp_path / "r.tar.gz"
    code, text = report(file, "--tail", "7")
    found = bundle(file)
    assert set(found) == {
        "llmdeployments.json",
        "pods.json",
        "deployments.json",
        "replicasets.json",
        "services.json",
        "networkpolicies.json",
        "events.json",
        "checks.json",
        "versions.json",
        "logs/apps/chat-1/engine.log",
        "logs/apps/chat-1/engine-previous.log",
        f"logs/{release.NAMESPACE}/sluice-1/engine.log",
        "summary.json",
    }
    assert [each["metadata"]["name"] for each in json.loads(found["events.json"])] == ["e"]
    assert [each["metadata"]["name"] for each in json.loads(found["pods.json"])] == ["chat-1", "sluice-1"]
    assert json.loads(found["versions.json"])["kubernetes"] == "v1.34.1"
    conditions = json.loads(found["llmdeployments.json"])[0]["status"]["conditions"]
    assert conditions[0]["reason"] == "ModelAccessDenied"
    assert any("tailLines=7" in each and "previous=true" in each for each in planted.asked)
    summary = json.loads(found["summary.json"])
    assert summary["faults"] == [] and summary["redactedValues"] >= len(PLANTED) - 2
    assert (code, text) == (0, f"{file}: 13 files, {summary['redactedValues']} values redacted.\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_program_gets_the_name_of_the_file_and_what_it_lacks(planted: ApiServer, tmp_path: Path) -> None:
    planted.objects[LOG] = 403
    code, text = report(tmp_path / "r.tar.gz", "-o", "json")
    found = json.loads(text)
    assert (code, found["file"], found["files"]) == (0, str(tmp_path / "r.tar.gz"), len(bundle(tmp_path / "r.tar.gz")))
    assert found["redactedValues"] > 0 and all("403" in fault for fault in found["faults"])


def test_what_cannot_be_read_is_named_and_the_rest_is_packed(planted: ApiServer, tmp_path: Path) -> None:
    planted.objects[LOG] = 403
    planted.objects[collection("v1", "events", "apps")] = 403
    code, text = report(tmp_path / "r.tar.gz")
    found = bundle(tmp_path / "r.tar.gz")
    assert code == 0 and text.count("not contained: GET") == 2  # of both logs of a container once
    assert len(json.loads(found["summary.json"])["faults"]) == 2
    assert "logs/apps/chat-1/engine.log" not in found and json.loads(found["pods.json"])


@pytest.mark.usefixtures("planted")
def test_a_file_that_exists_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "r.tar.gz"
    file.write_text("mine")
    code, text = report(file)
    assert (code, text) == (contract.EXIT_USAGE, f"{file} exists: choose another name with --file.\n")
    assert file.read_text() == "mine"
    code, text = report(tmp_path / "absent" / "r.tar.gz")
    assert code == contract.EXIT_USAGE and "Choose another place" in text
