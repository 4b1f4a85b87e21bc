"""LocalCluster over real child processes: a small HTTP server stands where an engine would."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice import contract
from sluice_operator.cluster.client import ForeignObject, Object, controller_of
from sluice_operator.cluster.local import LocalCluster, LocalClusterOptions
from sluice_operator.cluster.local.kubelet import KubeletPeriods
from sluice_operator.cluster.local.launch import Launch, PodFiles, container_env
from sluice_operator.cluster.local.process import Ports
from sluice_operator.cluster.pod_status import phase_of, template_hash

OWNER: Object = {"apiVersion": contract.API_VERSION, "kind": contract.KIND, "metadata": {"name": "chat", "uid": "u1"}}
LABELS = {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_INSTANCE: "chat"}
FAST = KubeletPeriods(probe=0.02, probe_timeout=2.0, initial_backoff=0.02, max_backoff=0.1)

# Ready once it listens; on SIGTERM it leaves once there is no file DRAIN (any more), as the engine does without streams.
CHILD = """
import http.server, os, signal, sys, threading, time
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *a): pass
def leave(*_):
    while os.path.exists(os.environ.get("DRAIN", "")):
        time.sleep(0.01)
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
if os.environ.get("CRASH"):
    print("it went wrong"); open(os.environ["SLUICE_TERMINATION_MESSAGE"], "w").write(os.environ["CRASH"]); sys.exit(78)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"""


def child_command(container: Object, ports: Ports, files: PodFiles, pod: str, replicas: int) -> Launch:
    argv = [sys.executable, "-I", "-S", "-c", CHILD, str(ports.admin)]
    return Launch(argv, container_env(container, files, pod=pod))


def deployment(replicas: int, **env: str) -> Object:
    container = {"name": "engine", "env": [{"name": name, "value": value} for name, value in env.items()]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 60},
            },
        },
    }


class Watch:
    """A cluster, and a way to wait for what becomes of it without guessing times."""

    def __init__(self, folder: Path) -> None:
        self._changed = asyncio.Event()
        self.cluster = LocalCluster(LocalClusterOptions(folder, FAST, child_command), on_change=self._changed.set)

    async def pods(self) -> list[Object]:
        return await self.cluster.list("Pod", "default", LABELS)

    async def until(self, holds: Callable[[list[Object]], bool]) -> list[Object]:
        async with asyncio.timeout(60):
            while True:
                self._changed.clear()
                await asyncio.sleep(0)  # let the controllers' pass run that the change has woken
                pods = await self.pods()
                if holds(pods):
                    await asyncio.sleep(0)  # what changed since has woken another pass, which comes first now
                    return pods
                await self._changed.wait()

    async def until_ready(self, count: int) -> list[Object]:
        return await self.until(lambda pods: [phase_of(pod)[0] for pod in pods] == ["ready"] * count)


@asynccontextmanager
async def local_cluster(folder: Path) -> AsyncIterator[Watch]:
    watch = Watch(folder)
    try:
        yield watch
    finally:
        await watch.cluster.close()


def logs(folder: Path) -> str:
    return "".join(log.read_text() for log in folder.glob("*.log"))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pids(watch: Watch) -> list[int]:
    return [pod.pid for pod in watch.cluster._controllers.pods.values() if pod.pid is not None]


def tokens(folder: Path) -> list[tuple[str, int]]:
    return [(token.read_text(), token.stat().st_mode & 0o777) for token in folder.glob("*.token")]


async def test_applying_a_deployment_starts_processes_and_shows_them_as_pods(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        await watch.cluster.apply(deployment(2), owner=OWNER)
        pods = await watch.until_ready(2)
        assert all(phase_of(pod) == ("ready", None) for pod in pods)
        endpoints = [watch.cluster.endpoint(pod) for pod in pods]
        assert len({endpoint.port for endpoint in endpoints if endpoint}) == 2
        assert len(watch.cluster.backends("default", "chat")) == 2
        status = (await watch.cluster.get("Deployment", "default", "chat") or {})["status"]
        assert status["readyReplicas"] == 2
        running = pids(watch)
    assert not any(alive(pid) for pid in running)


async def test_scale_in_drains_the_pod_with_the_lowest_deletion_cost(tmp_path: Path) -> None:
    streams = tmp_path / "streams"
    streams.touch()
    async with local_cluster(tmp_path) as watch:
        await watch.cluster.apply(deployment(2, DRAIN=str(streams)), owner=OWNER)
        pods = await watch.until_ready(2)
        victim, survivor = (str(pod["metadata"]["name"]) for pod in pods)
        for name, cost in ((victim, "1"), (survivor, "9")):
            meta = {"name": name, "namespace": "default", "annotations": {contract.ANNOTATION_DELETION_COST: cost}}
            await watch.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta})
        await watch.cluster.apply(deployment(1, DRAIN=str(streams)), owner=OWNER)
        pods = await watch.until(lambda pods: any(phase_of(pod)[0] == "draining" for pod in pods))
        assert [pod["metadata"]["name"] for pod in pods if phase_of(pod)[0] == "draining"] == [victim]
        assert [name for name, *_ in watch.cluster.backends("default", "chat")] == [survivor]
        streams.unlink()
        pods = await watch.until_ready(1)
        assert [pod["metadata"]["name"] for pod in pods] == [survivor]


async def test_a_changed_template_rolls_without_a_moment_of_less(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        await watch.cluster.apply(deployment(1), owner=OWNER)
        old = {pod["metadata"]["name"] for pod in await watch.until_ready(1)}
        await watch.cluster.apply(deployment(1, COLOUR="blue"), owner=OWNER)
        fewest = 1

        def rolled(pods: list[Object]) -> bool:
            nonlocal fewest
            fewest = min(fewest, len(watch.cluster.backends("default", "chat")))
            return len(pods) == 1 and pods[0]["metadata"]["name"] not in old

        await watch.until(rolled)
        assert fewest == 1


async def test_a_crash_is_shown_with_the_engines_message_and_retried(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        said = '{"reason": "ModelNotFound", "message": "no folder /nowhere"}'
        await watch.cluster.apply(deployment(1, CRASH=said), owner=OWNER)

        def twice(pods: list[Object]) -> bool:
            return bool(pods) and pods[0]["status"]["containerStatuses"][0]["restartCount"] >= 2

        pods = await watch.until(twice)
        phase, problem = phase_of(pods[0])
        assert phase == "failed"
        assert problem is not None
        assert (problem.reason, problem.message) == ("ModelNotFound", "no folder /nowhere")
        assert "it went wrong" in logs(tmp_path)


async def test_a_killed_engine_is_restarted(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        await watch.cluster.apply(deployment(1), owner=OWNER)
        await watch.until_ready(1)
        (first,) = pids(watch)
        os.kill(first, 9)
        await watch.until(lambda pods: not watch.cluster.backends("default", "chat"))
        await watch.until_ready(1)
        assert pids(watch) != [first]


async def test_an_engine_that_does_not_exit_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        manifest = deployment(1, DRAIN=str(tmp_path))  # for ever
        manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0.1
        await watch.cluster.apply(manifest, owner=OWNER)
        await watch.until_ready(1)
        (pid,) = pids(watch)
    assert not alive(pid)


async def test_a_volume_claim_is_refused_with_a_remedy(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        manifest = deployment(1)
        volume: dict[str, Any] = {"name": "model", "persistentVolumeClaim": {"claimName": "tiny"}}
        manifest["spec"]["template"]["spec"]["volumes"] = [volume]
        await watch.cluster.apply(manifest, owner=OWNER)
        pods = await watch.until(lambda pods: bool(pods) and phase_of(pods[0])[0] == "failed")
        problem = phase_of(pods[0])[1]
        assert problem is not None
        assert "file:///" in problem.message


async def test_a_missing_secret_keeps_the_pod_waiting_with_its_name(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        manifest = deployment(1)
        spec = manifest["spec"]["template"]["spec"]
        spec["volumes"] = [{"name": "admin", "secret": {"secretName": "chat-admin"}}]
        spec["containers"][0]["volumeMounts"] = [{"name": "admin", "mountPath": contract.ADMIN_TOKEN_MOUNT}]
        await watch.cluster.apply(manifest, owner=OWNER)
        pods = await watch.until(lambda pods: bool(pods) and phase_of(pods[0])[0] == "failed")
        problem = phase_of(pods[0])[1]
        assert problem is not None
        assert (problem.reason, "chat-admin" in problem.message) == ("SecretNotFound", True)
        await watch.cluster.create(
            {
                "kind": "Secret",
                "metadata": {"name": "chat-admin", "namespace": "default"},
                "data": {"token": "c2VjcmV0"},
            }
        )
        await watch.until_ready(1)
        assert tokens(tmp_path) == [("secret", 0o600)]


async def test_deleting_the_deployment_drains_its_pods(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        await watch.cluster.apply(deployment(1), owner=OWNER)
        await watch.until_ready(1)
        await watch.cluster.delete("Deployment", "default", "chat")
        await watch.until(lambda pods: not pods)


async def test_objects_of_others_are_left_alone(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        mine = {"kind": "Service", "metadata": {"name": "chat", "namespace": "default"}, "spec": {"type": "ClusterIP"}}
        await watch.cluster.create(mine)
        with pytest.raises(ForeignObject, match="Service default/chat"):
            await watch.cluster.apply(mine, owner=OWNER)


async def owners(watch: Watch) -> dict[str, str]:
    """The pods of the Deployment's own ReplicaSets, with the version that each was made from."""
    deployment = await watch.cluster.get("Deployment", "default", "chat")
    assert deployment is not None
    sets = {each["metadata"]["uid"]: each for each in await watch.cluster.list("ReplicaSet", "default", LABELS)}
    assert {controller_of(each) for each in sets.values()} == {deployment["metadata"]["uid"]}
    return {
        pod["metadata"]["name"]: sets[controller_of(pod)]["metadata"]["labels"]["pod-template-hash"]
        for pod in await watch.pods()
    }


async def test_pods_are_controlled_by_a_replica_set_for_each_version_of_the_template(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        await watch.cluster.apply(deployment(2), owner=OWNER)
        old = {pod["metadata"]["name"] for pod in await watch.until_ready(2)}
        assert len(set((await owners(watch)).values())) == 1
        await watch.cluster.apply(deployment(2, COLOUR="blue"), owner=OWNER)
        await watch.until(lambda pods: len(pods) == 2 and not old & {pod["metadata"]["name"] for pod in pods})
        await watch.until_ready(2)
        assert len(await watch.cluster.list("ReplicaSet", "default", LABELS)) == 1  # the old version has no pod left
        assert {template_hash(pod) for pod in await watch.pods()} == set((await owners(watch)).values())
        await watch.cluster.delete("Deployment", "default", "chat")
        await watch.until(lambda pods: not pods)
        assert await watch.cluster.list("ReplicaSet", "default", LABELS) == []
