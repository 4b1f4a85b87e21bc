"""`sluice up` gives its engines what a kubelet would: the ConfigMap as a file, renewed while they run."""

import json
from pathlib import Path

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.local.launch import PodFiles, replace_file, serve_launch, targets_name
from sluice_operator.cluster.local.process import Ports
from sluice_operator.cluster.pod_status import phase_of
from tests.operator.cluster.local.test_launch import last, template
from tests.operator.cluster.local.test_local_cluster import OWNER, deployment, local_cluster, pids


def config_map(itl: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "chat-targets", "namespace": "default"},
        "data": {contract.TARGETS_FILE: json.dumps({"itl_target_ms": itl})},
    }


def mounting() -> Object:
    manifest = deployment(1)
    spec = manifest["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "targets", "configMap": {"name": "chat-targets"}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "targets", "mountPath": contract.TARGETS_MOUNT}]
    return manifest


def read(folder: Path) -> list[int]:
    """The ITL target in each pod's file."""
    return [json.loads(path.read_text())["itl_target_ms"] for path in folder.glob("*.targets")]


async def test_a_running_pod_gets_the_new_targets_without_a_restart(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        await watch.cluster.apply(config_map(80), owner=OWNER)
        await watch.cluster.apply(mounting(), owner=OWNER)
        await watch.until_ready(1)
        assert read(tmp_path) == [80]
        before = pids(watch)
        await watch.cluster.apply(config_map(120), owner=OWNER)
        await watch.until(lambda _: read(tmp_path) == [120])
        assert pids(watch) == before


async def test_a_missing_config_map_keeps_the_pod_waiting_with_its_name(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        await watch.cluster.apply(mounting(), owner=OWNER)
        pods = await watch.until(lambda pods: bool(pods) and phase_of(pods[0])[0] == "failed")
        problem = phase_of(pods[0])[1]
        assert problem is not None and "chat-targets" in problem.message
        await watch.cluster.apply(config_map(80), owner=OWNER)
        await watch.until_ready(1)
        assert read(tmp_path) == [80]


def test_the_engine_is_started_with_the_pods_own_file(tmp_path: Path) -> None:
    files = PodFiles.under(tmp_path, "chat-1")
    launch = serve_launch(template()["spec"]["containers"][0], Ports(1, 2), files, pod="chat-1")
    assert last(launch.argv, "targets-file") == str(files.targets)
    assert targets_name(template()) == "chat-targets"


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.targets"
    replace_file(path, b"old")
    with path.open("rb") as reader:
        replace_file(path, b"new and longer")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new and longer"
    assert list(tmp_path.iterdir()) == [path]
