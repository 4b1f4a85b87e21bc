"""The process as a whole: what it imports, what it weighs, how it starts, what it watches."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice import contract
from sluice.cli import app
from sluice_operator.cluster.client import ClusterError
from sluice_operator.cluster.kinds import path
from sluice_operator.cluster.kube import KubeClient
from sluice_operator.runtime import watches
from sluice_operator.settings import InvalidSettings, Settings, from_environment

IMPORTS = """
import sys
import sluice_operator.runtime.process
heavy = sorted({name.split(".")[0] for name in sys.modules} & {"torch", "transformers", "numpy", "triton"})
memory = next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]
print(",".join(heavy), "kubernetes.client" in sys.modules, memory)
"""


def test_the_operator_never_imports_torch_and_stays_small() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{IMPORTS}"],
        capture_output=True,
        text=True,
        check=True,
    )
    heavy, _, kilobytes = done.stdout.rstrip("\n").split(" ")
    assert heavy == ""
    assert int(kilobytes) < 120_000


def test_handlers_stay_a_thin_adapter() -> None:
    assert len(Path(watches.__file__).read_text("utf-8").splitlines()) < 100


def test_kopf_runs_standalone_with_deadlines() -> None:
    settings = watches.kopf_settings()
    assert settings.peering.standalone and not settings.posting.enabled and settings.scanning.disabled
    assert settings.watching.server_timeout == 600 and settings.watching.client_timeout == 660
    assert settings.queueing.worker_limit is not None


def test_no_handler_asks_for_a_finalizer() -> None:
    kinds = watches.watched_kinds(Settings())
    registry = watches.registry(kinds, lambda kind, change, thing: None, lambda key, version: None)
    assert len(list(registry._watching.get_all_handlers())) == len(kinds) == 9
    for other in (registry._changing, registry._spawning, registry._indexing):
        assert list(other.get_all_handlers()) == []


def test_namespaces_are_watched_where_a_role_can_allow_it_and_secrets_never() -> None:
    assert "Namespace" in watches.watched_kinds(Settings())
    assert "Namespace" not in watches.watched_kinds(Settings(namespaces=("apps",)))
    assert "Secret" not in {*watches.watched_kinds(Settings()), *watches.watched_kinds(Settings(namespaces=("apps",)))}


def test_settings_come_from_the_environment() -> None:
    assert from_environment({}) == Settings(pod_name=from_environment({}).pod_name)
    given = from_environment({"SLUICE_NAMESPACE": "a,b", "SLUICE_INTERVAL_SECONDS": "2", "POD_NAME": "x-1"})
    assert (given.namespaces, given.interval, given.pod_name) == (("a", "b"), 2.0, "x-1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLUICE_INTERVAL_SECONDS", "soon"),
        ("SLUICE_INTERVAL_SECONDS", "0"),
        ("SLUICE_HEALTH_PORT", "http"),
        ("SLUICE_HEALTH_PORT", "70000"),
        ("SLUICE_LEASE_NAME", "Not A Name"),
        ("SLUICE_POD_IDS", "root"),
        ("SLUICE_MAX_UPGRADES", "0"),
        ("SLUICE_MAX_UPGRADES", "all"),
    ],
)
def test_a_wrong_setting_is_one_sentence(name: str, value: str) -> None:
    with pytest.raises(InvalidSettings, match=f"{name} is '{value}'"):
        from_environment({name: value})


def test_a_wrong_setting_ends_the_command_with_2() -> None:
    result = CliRunner().invoke(app, ["operator"], env={"SLUICE_INTERVAL_SECONDS": "soon"})
    assert result.exit_code == contract.EXIT_USAGE
    assert "SLUICE_INTERVAL_SECONDS" in result.output


def test_a_missing_cluster_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    result = CliRunner().invoke(app, ["explain", "chat"])
    assert result.exit_code == contract.EXIT_FAILED
    assert "KUBECONFIG" in result.output


def test_paths_of_the_api() -> None:
    assert path("Pod", "ns", "a") == "/api/v1/namespaces/ns/pods/a"
    assert path("Deployment", "ns") == "/apis/apps/v1/namespaces/ns/deployments"
    assert path(contract.KIND) == "/apis/sluice.dev/v1alpha1/llmdeployments"
    with pytest.raises(ClusterError, match="Node"):
        path("Node")


def test_a_pod_without_an_address_has_no_endpoint() -> None:
    cluster = KubeClient.__new__(KubeClient)
    assert cluster.endpoint({"metadata": {"name": "a"}, "status": {}}) is None
    endpoint = cluster.endpoint({"metadata": {"name": "a"}, "status": {"podIP": "10.1.1.1"}})
    assert endpoint is not None and (endpoint.host, endpoint.port) == ("10.1.1.1", contract.ADMIN_PORT)
