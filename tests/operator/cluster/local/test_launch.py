"""From the rendered Deployment to a command on this machine."""

from pathlib import Path
from typing import Any

import pytest

from sluice import contract
from sluice_operator import render
from sluice_operator.api import parse
from sluice_operator.cluster.local.launch import (
    LocalError,
    PodFiles,
    admin_secret_name,
    kv_share,
    reject_claims,
    reject_references,
    secret_value,
    serve_launch,
)
from sluice_operator.cluster.local.process import Ports


def template(uri: str = "file:///models/tiny") -> dict[str, Any]:
    resource = parse(
        {
            "apiVersion": contract.API_VERSION,
            "kind": contract.KIND,
            "metadata": {"name": "chat"},
            "spec": {
                "model": {"uri": uri},
                "engine": {
                    "accelerator": {"count": 0},
                    "template": {"env": [{"name": "SLUICE_PACE", "value": "base=0.03"}]},
                },
            },
        }
    )
    *_, deployment = render.children(resource, defaults=render.PodDefaults("engine"), replicas=1, token="t")
    spec: dict[str, Any] = deployment["spec"]["template"]
    return spec


def last(argv: list[str], option: str) -> str:
    """The value that counts: of the last occurrence, in either spelling."""
    found = [a.partition("=")[2] for a in argv if a.startswith(f"--{option}=")]
    found += [argv[i + 1] for i, a in enumerate(argv) if a == f"--{option}"]
    return found[-1]


def test_the_rendered_arguments_stay_and_local_ones_come_later(tmp_path: Path) -> None:
    files = PodFiles.under(tmp_path, "chat-1")
    launch = serve_launch(template()["spec"]["containers"][0], Ports(4000, 4001), files, pod="chat-1")
    assert launch.argv[1:5] == ["-m", "sluice", "serve", "/models/tiny"]
    assert "--served-name=chat" in launch.argv
    assert [last(launch.argv, option) for option in ("host", "port", "admin-port")] == ["127.0.0.1", "4000", "4001"]
    assert last(launch.argv, "admin-token-file") == str(files.token)
    assert launch.argv.index("--host") > launch.argv.index("--host=0.0.0.0")


def test_a_dollar_in_the_models_path_reaches_the_engine(tmp_path: Path) -> None:
    files = PodFiles.under(tmp_path, "chat-1")
    container = template("file:///models/$(HOME)")["spec"]["containers"][0]
    assert serve_launch(container, Ports(4000, 4001), files, pod="chat-1").argv[4] == "/models/$(HOME)"


def test_engines_of_this_machine_use_its_key_file_and_no_tls(tmp_path: Path) -> None:
    mounted = ["--api-keys-file=/etc/sluice/keys/keys.yaml", "--tls-cert-file=/c", "--tls-key-file=/k"]
    container = {"args": ["serve", "/m", *mounted]}
    for keys, expected in ((None, ""), (tmp_path / "keys.yaml", str(tmp_path / "keys.yaml"))):
        argv = serve_launch(container, Ports(1, 2), PodFiles.under(tmp_path, "chat-1", keys), pod="chat-1").argv
        assert [last(argv, option) for option in ("api-keys-file", "tls-cert-file", "tls-key-file")] == [
            expected,
            "",
            "",
        ]


def test_the_containers_environment_is_laid_over_ours_without_the_images_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    files = PodFiles.under(tmp_path, "chat-1")
    env = serve_launch(template()["spec"]["containers"][0], Ports(1, 2), files, pod="chat-1").env
    assert env["HOME"] == "/home/me"
    assert env["SLUICE_PACE"] == "base=0.03"
    assert env[contract.ENV_TERMINATION_MESSAGE] == str(files.termination)


def test_the_admin_secret_is_found_where_the_template_mounts_it() -> None:
    assert admin_secret_name(template()) == render.names.admin_secret("chat", "t")
    assert admin_secret_name({"spec": {"containers": [{}]}}) is None


def test_only_a_volume_claim_is_refused() -> None:
    reject_claims(template())
    with pytest.raises(LocalError, match="file:///"):
        reject_claims(template("pvc://claim/tiny"))


@pytest.mark.parametrize("source", ["secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"])
def test_a_variable_of_a_cluster_is_named_with_two_remedies(source: str) -> None:
    reject_references({"env": [{"name": "A", "value": "x"}]})
    with pytest.raises(LocalError, match=r"env: A comes from .* set value here, or .* export"):
        reject_references({"env": [{"name": "A", "valueFrom": {source: {"name": "s", "key": "k"}}}]})


def test_all_variables_of_a_secret_are_refused_and_the_pods_own_name_is_not() -> None:
    reject_references({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]})
    with pytest.raises(LocalError, match=r"envFrom: .* export"):
        reject_references({"envFrom": [{"prefix": "A_", "secretRef": {"name": "s"}}]})


def test_a_secret_without_its_key_says_what_to_do() -> None:
    assert secret_value({"data": {"token": "c2VjcmV0"}}, "token") == b"secret"
    assert secret_value({"stringData": {"token": "secret"}}, "token") == b"secret"
    with pytest.raises(LocalError, match="delete it"):
        secret_value({"data": {}}, "token")


@pytest.mark.parametrize(
    ("arguments", "replicas", "share"),
    [(["--kv-memory-fraction=0.9"], 3, 0.3), (["--kv-memory-fraction=0.9"], 1, 0.9), (["--kv-size=64"], 3, None)],
)
def test_replicas_share_the_free_memory(arguments: list[str], replicas: int, share: float | None) -> None:
    assert kv_share(arguments, replicas) == (None if share is None else pytest.approx(share))


def test_the_share_of_a_replica_comes_after_the_fraction_of_the_file(tmp_path: Path) -> None:
    files = PodFiles.under(tmp_path, "chat-1")
    launch = serve_launch(template()["spec"]["containers"][0], Ports(1, 2), files, "chat-1", 4)
    assert last(launch.argv, "kv-memory-fraction") == "0.225"
