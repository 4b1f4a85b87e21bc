"""`kubectl sluice`: kubectl runs the executable kubectl-sluice of the PATH with the rest of the command line."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from sluice import __version__
from tests.cluster.api_server import running
from tests.cluster.resources import in_namespace, serving

ROOT = Path(__file__).parents[2]


def installed(folder: Path) -> Path:
    """The script that pip makes of the entry point in pyproject.toml."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["kubectl-sluice"].partition(":")
    script = folder / "kubectl-sluice"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    script.chmod(0o755)
    return script


def kubeconfig(file: Path, port: int) -> Path:
    """A file whose current context is a server on this machine and the namespace `apps`."""
    context = {"cluster": "here", "user": "me", "namespace": "apps"}
    found = {
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "here", "context": context}],
        "users": [{"name": "me", "user": {}}],
        "current-context": "here",
    }
    file.write_text(json.dumps(found))
    return file


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "operator"), "KUBECONFIG": str(script.parent / "config")}
    return subprocess.run(
        [script, *arguments], capture_output=True, text=True, check=False, env=environment, timeout=120
    )


def test_the_plugin_runs_the_commands_under_the_name_that_the_user_typed(tmp_path: Path) -> None:
    script = installed(tmp_path)
    assert run(script, "--version").stdout == f"sluice {__version__}\n"
    shown = run(script, "status", "--help")
    assert shown.returncode == 0 and shown.stdout.startswith("Usage: kubectl sluice status ")


def test_without_a_cluster_it_exits_with_a_sentence(tmp_path: Path) -> None:
    done = run(installed(tmp_path), "status")
    assert done.returncode == 1
    assert "no cluster to talk to" in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_it_reads_the_cluster_and_the_namespace_of_the_current_context(tmp_path: Path) -> None:
    with running() as server:
        server.serve(in_namespace("apps"), serving("chat"))
        kubeconfig(tmp_path / "config", server.port)
        done = run(installed(tmp_path), "status")
    assert (done.returncode, done.stdout.splitlines()[1].split()) == (
        0,
        ["chat", "Qwen3-8B", "3/3", "Serving", "99.4", "61", "48"],
    )
