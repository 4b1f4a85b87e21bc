"""The reference of the chart's values, and the pod of `helm test`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from sluice.chart.values_reference import reference, values_of
from tests.operator.security.chart_objects import stored

CHART = Path(__file__).parents[2] / "charts/sluice"
VALUES = (CHART / "values.yaml").read_text()


def leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value and name not in {"requests", "limits"}:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def test_each_value_is_listed_with_its_default_and_a_comment() -> None:
    found = {each.name: json.loads(each.default) for each in values_of(VALUES)}
    assert found == dict(leaves(yaml.safe_load(VALUES)))
    assert (CHART / "README.md").read_text() == reference(VALUES)


def test_a_value_has_its_own_comment_or_that_of_its_group() -> None:
    text = "# -- Group.\na:\n  # -- Own,\n  # on two lines.\n  b: 1\n  c: [x]\n"
    assert [(each.name, each.default, each.text) for each in values_of(text)] == [
        ("a.b", "1", "Own, on two lines."),
        ("a.c", '["x"]', "Group."),
    ]
    with pytest.raises(ValueError, match=r"no comment for d\.e"):
        values_of("d:\n  e: 1\n")


def run_test_pod(status: int, body: bytes) -> "subprocess.CompletedProcess[str]":
    """Run the program of the chart's test pod against a gateway that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/v1/models" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    (job,) = stored("default", "Job")
    program, url = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert url == "http://blue-sluice-gateway.sluice-system.svc:80"
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.handle_request, daemon=True).start()
        command = [sys.executable, "-c", program, f"http://127.0.0.1:{server.server_port}"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_helm_test_passes_where_the_gateway_lists_its_models_or_wants_a_key() -> None:
    listed = run_test_pod(200, b'{"object": "list", "data": [{"id": "chat"}]}')
    assert (listed.returncode, listed.stdout) == (0, "models: ['chat']\n")
    assert run_test_pod(401, b"{}").returncode == 0


@pytest.mark.parametrize(("status", "body"), [(503, b"{}"), (200, b"<html>")])
def test_helm_test_fails_where_something_else_answers(status: int, body: bytes) -> None:
    assert run_test_pod(status, body).returncode != 0


def test_the_test_pod_is_restricted() -> None:
    (job,) = stored("default", "Job")
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["automountServiceAccountToken"] is False and pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert stored("no_gateway", "Job") == []
