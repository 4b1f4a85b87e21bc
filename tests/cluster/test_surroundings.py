"""The commands that read a cluster, with kubeconfigs that cannot be used and outputs that cannot hold every character."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice import contract
from sluice.cli import app
from tests.cluster.api_server import ApiServer, running
from tests.cluster.resources import in_namespace, serving
from tests.kube.api_server import kubeconfig


@pytest.mark.parametrize("command", [["status"], ["explain", "chat"], ["top", "--once"]], ids=lambda each: each[0])
@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("clusters: [", "expected the node content"),
        ("", "no cluster, context or user"),
        ("[]", "no cluster, context or user"),
        ("kind: Config", "Expected key current-context"),
        ("current-context: x\ncontexts: 3\nclusters: []\nusers: []", "no usable kubeconfig"),
    ],
    ids=repr,
)
def test_a_kubeconfig_that_cannot_be_used_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str], text: str, cause: str
) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    result = CliRunner().invoke(app, command)
    assert result.exit_code == contract.EXIT_FAILED, result.exception
    (line,) = result.output.splitlines()
    assert line.startswith("no cluster to talk to") and cause in line and line.endswith("Set KUBECONFIG.")


@pytest.mark.parametrize("answer", [403, 404])
def test_explain_says_what_to_do_about_a_refusal(server: ApiServer, answer: int) -> None:
    server.objects[f"{in_namespace('apps')}/chat"] = answer
    result = CliRunner().invoke(app, ["explain", "chat", "-n", "apps"])
    assert result.exit_code == contract.EXIT_FAILED
    assert ("Ask for the view role" if answer == 403 else "see sluice status -A") in result.output


@pytest.mark.parametrize("given", ["", "chat/status", "../chat", "chat?watch=1", "Chat", "a b", "-"])
@pytest.mark.parametrize("command", ["status", "explain"])
def test_what_is_no_name_of_a_deployment_is_refused(server: ApiServer, command: str, given: str) -> None:
    server.serve(in_namespace("apps"), serving("chat"))
    result = CliRunner().invoke(app, [command, "-n", "apps", "--", given])
    assert result.exit_code == contract.EXIT_USAGE, result.exception
    assert "is no name" in result.output


@pytest.mark.parametrize(
    "command", [["status"], ["explain", "chat"], ["top", "--once"], ["report"], ["check"]], ids=str
)
def test_what_is_no_namespace_is_refused(server: ApiServer, command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "-n", "../apps"])
    assert result.exit_code == contract.EXIT_USAGE, result.exception
    assert "is no name" in result.output


def test_an_empty_namespace_is_that_of_the_context(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice_kube.api.context_namespace", lambda: "apps")
    server.serve(in_namespace("apps"), serving("chat"))
    result = CliRunner().invoke(app, ["status", "chat", "-n", ""])
    assert (result.exit_code, server.asked) == (0, [f"GET {in_namespace('apps')}/chat"]), result.output


def test_an_output_without_a_dash_or_an_arrow_ends_no_command(tmp_path: Path) -> None:
    with running() as server:
        decision = {"time": "2026-11-21T09:00:00Z", "kind": "replicas", "from": 1, "to": 2, "message": "1 → 2: é."}
        server.serve(in_namespace("apps"), serving("chat", kvOccupancyPercent=None, decisions=[decision]))
        file = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}")
        variables = {**os.environ, "KUBECONFIG": str(file), "PYTHONPATH": os.pathsep.join(sys.path)}

        def printed(encoding: str, *command: str) -> str:
            done = subprocess.run(
                [sys.executable, "-m", "sluice", *command, "-n", "apps"],
                env=variables | {"PYTHONIOENCODING": encoding},
                capture_output=True,
                check=True,
                timeout=120,
            )
            return done.stdout.decode(encoding)

        assert "?" in printed("latin-1", "status")
        assert "1 ? 2: é." in printed("latin-1", "explain", "chat")
        found = json.loads(printed("ascii", "explain", "chat", "-o", "json"))
        assert "2026-11-21T09:00:00Z  1 → 2: é." in found["sentences"]
