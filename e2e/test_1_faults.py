"""Part 1, continued: rows about what others get wrong: a hub that fails, too little memory, engines' metrics that lie.

A pod of the suite is the hub, because the cluster may have no way to the outside. Takes three minutes.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e.framework import manifests, model
from e2e.framework.cluster import Cluster, Object, is_ready, name_of, say, wait_for
from e2e.framework.operator_pod import Operator
from e2e.framework.settings import Settings
from e2e.inpod.hub import ABSENT, CONTROL_PORT, FAULTS, FILLED, GATED, LARGE, LIMITED, PRIVATE, SILENT, TOKEN, TRUNCATED
from sluice import contract

HUB = "hub"
MODEL = "hf://org/model"
SYNC = "example.com/synced"  # the kubelet updates the volumes of a changed pod at once
RETRIED = 200.0  # seconds: the kubelet may need 90 s, and the engine doubles the wait between two attempts up to 60 s
CACHE = "/cache"
SMALL: Object = {  # a file system of its own for the cache, on which the model fits, and no patience with a silent hub
    "env": [{"name": "XDG_CACHE_HOME", "value": CACHE}, {"name": "HF_HUB_DOWNLOAD_TIMEOUT", "value": "2"}],
    "volumes": [{"name": "cache", "emptyDir": {"medium": "Memory", "sizeLimit": "6Mi"}}],
    "volumeMounts": [{"name": "cache", "mountPath": CACHE}],
}
CACHED = """
from sluice_engine.sources import cached_models, default_cache
print(len(cached_models(default_cache())))
"""
FILL = f"""
with open("{CACHE}/others", "wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError as error:
        print(error)
"""
FREE = f"import os; os.remove('{CACHE}/others')"
DAMAGE = """
import os, signal
from sluice_engine.sources import cached_models, default_cache
[found] = cached_models(default_cache())
with (found.folder / "model.safetensors").open("r+b") as file:
    file.seek(-1, os.SEEK_END)
    last = file.read(1)[0]
    file.seek(-1, os.SEEK_END)
    file.write(bytes([last ^ 1]))
os.kill(1, signal.SIGTERM)
"""
SCARCE: Object = {  # each tensor is allocated from the system and given back to it; steps are held to no pace
    "env": [
        {"name": contract.ENV_THREADS, "value": "1"},
        {"name": "MALLOC_ARENA_MAX", "value": "1"},
        {"name": "MALLOC_MMAP_THRESHOLD_", "value": "65536"},
    ]
}
LIE = "/tmp/lie"
LIES = ("NaN", "huge", "garbage")  # one for each pod
FAULT = "/fault"
LYING: Object = {
    "env": [*manifests.engine()["template"]["env"], {"name": "PYTHONPATH", "value": FAULT}],
    "volumes": [
        {"name": "fault", "configMap": {"name": "programs", "items": [{"key": "lying.py", "path": "sitecustomize.py"}]}}
    ],
    "volumeMounts": [{"name": "fault", "mountPath": FAULT}],
}
GROWTH = 20e6  # bytes that an engine may keep after a step that failed
STABILISATION = 10  # seconds of the fleet's scaleDownStabilizationSeconds
REMEMBERED = 60  # seconds of its burstMemorySeconds, the least that there is
HELD = STABILISATION + REMEMBERED + 15  # seconds after which the idle fleet would have fewer replicas by right metrics


@dataclass(frozen=True)
class Lie:
    """The pods that lie, and the monotonic time since which they are more than needed."""

    pods: list[Object]
    since: float


@pytest.fixture(scope="module", autouse=True)
def lie(cluster: Cluster, operator: Operator) -> Iterator[Lie]:
    """Three idle pods that lie from before the first test on. Fewer were enough, while the other faults are tried."""
    scaling = {"mode": "Auto", "minReplicas": len(LIES), "maxReplicas": len(LIES)}
    scaling |= {"scaleDownStabilizationSeconds": STABILISATION, "burstMemorySeconds": REMEMBERED}
    cluster.apply(manifests.llm_deployment("lying", engine=manifests.engine(template=LYING), scaling=scaling))
    wait_for("3 pods serve", lambda: len(serving(cluster)) == len(LIES), timeout=300)
    wait_for("MetricsAvailable is True", lambda: measured(cluster) == "True", timeout=60)
    liars = serving(cluster)
    for pod, said in zip(liars, LIES, strict=True):
        cluster.kubectl("exec", name_of(pod), "--", "sh", "-c", f"echo {said} > {LIE}")
    wait_for("MetricsAvailable is False", lambda: measured(cluster) == "False", timeout=90)
    cluster.patch("llmd", "lying", {"spec": {"scaling": {"minReplicas": 1}}})
    yield Lie(liars, time.monotonic())
    cluster.kubectl("delete", "llmd", "lying", "--timeout=100s")


@pytest.fixture(scope="module")
def hub(cluster: Cluster, operator: Operator, settings: Settings) -> Iterator[None]:
    """The hub, models that cannot be fetched from it, and an engine for which memory becomes scarce; all start together.

    The operator does not ask the hub, so the pods tell why.
    """
    pod = manifests.program_pod(HUB, settings.image("engine"), "hub.py", manifests.MODEL)
    pod["metadata"]["labels"] = {"app": HUB}
    files = {"hub.py": "hub.py", "hub_server.py": "tests/hub_server.py"}
    (programs,) = (each["configMap"] for each in pod["spec"]["volumes"] if each["name"] == "programs")
    programs["items"] = [{"key": key, "path": path} for key, path in files.items()]
    ports = [{"name": f"p{port}", "port": port} for port in FAULTS]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": HUB}}
    cluster.apply(pod, service | {"spec": {"selector": {"app": HUB}, "ports": ports}})
    wait_for("the hub runs", lambda: len(cluster.endpoints(HUB)) == 1, timeout=120)
    memory = manifests.engine(template=SCARCE, scheduling={"maxNumSeqs": 64, "maxBatchedTokens": 2048})
    models = [
        manifests.llm_deployment("scarce", engine=memory),
        fetched(cluster, "private", PRIVATE, tokenSecretRef={"name": "hub-token"}),
        fetched(cluster, "gated", GATED),
        fetched(cluster, "unknown-revision", PRIVATE, uri=f"{MODEL}@v9", tokenSecretRef={"name": "hub-right"}),
        fetched(cluster, "large", LARGE),
        fetched(cluster, "absent", ABSENT),
        fetched(cluster, "limited", LIMITED),
        fetched(cluster, "silent", SILENT, overlay=SMALL),
        fetched(cluster, "truncated", TRUNCATED),
        fetched(cluster, "filled", FILLED, overlay=SMALL),
    ]
    cluster.apply(token("hub-right", TOKEN), *models)
    yield
    cluster.kubectl("delete", "llmd", *map(name_of, models), "--timeout=100s")
    cluster.kubectl(
        "delete", f"pod/{HUB}", f"service/{HUB}", "secret/hub-token", "secret/hub-right", "--ignore-not-found"
    )


def test_row_weights_larger_than_the_memory_are_reported_with_numbers_before_they_are_fetched(
    cluster: Cluster, hub: None
) -> None:
    found = wait_for_reason(cluster, "large", "InsufficientMemory")
    assert "4 GiB of weights in float32" in found["message"]
    assert "The free memory is" in found["message"]


def test_row_a_gated_model_and_an_unknown_revision_are_reported_with_a_next_step(cluster: Cluster, hub: None) -> None:
    assert "Accept its terms" in wait_for_reason(cluster, "gated", "ModelAccessDenied")["message"]
    found = wait_for_reason(cluster, "unknown-revision", "RevisionNotFound")
    assert "v9" in found["message"]


def test_row_a_missing_and_a_wrong_token_of_the_hub_are_reported_until_the_right_one_heals(
    cluster: Cluster, hub: None
) -> None:
    wait_for_reason(cluster, "private", "SecretNotFound")
    [before] = cluster.pods("private")
    for number, value in enumerate(("hf-wrong-token", TOKEN)):
        cluster.apply(token("hub-token", value))
        cluster.kubectl("annotate", "--overwrite", "pod", name_of(before), f"{SYNC}={number}")
        if value != TOKEN:
            message = wait_for_reason(cluster, "private", "ModelAccessDenied")["message"]
            assert "does not give access" in message
            assert value not in message
    after = served(cluster, "private")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_row_a_model_that_the_hub_does_not_have_and_too_many_requests_are_reported_with_a_next_step(
    cluster: Cluster, hub: None
) -> None:
    assert "Check the name" in wait_for_reason(cluster, "absent", "ModelNotFound")["message"]
    assert "a token raises the limit" in wait_for_reason(cluster, "limited", "RateLimited")["message"]
    mend(cluster, LIMITED)
    served(cluster, "limited")


def test_row_a_download_is_continued_where_answers_end_early(cluster: Cluster, hub: None) -> None:
    served(cluster, "truncated")
    begins = begun(cluster, TRUNCATED)
    assert len(begins) > 2
    assert begins == sorted(set(begins))


def test_row_a_hub_that_falls_silent_is_reported_and_the_download_continues_where_it_ended(
    cluster: Cluster, hub: None
) -> None:
    assert "Check the network" in wait_for_reason(cluster, "silent", "SourceUnreachable")["message"]
    [pod] = cluster.pods("silent")
    assert (python(cluster, pod, CACHED), is_ready(pod)) == ("0", False)
    mend(cluster, SILENT)
    served(cluster, "silent")
    begins = begun(cluster, SILENT)
    assert begins == sorted(begins)
    assert min(begins[1:]) > 0


def test_row_a_full_disk_is_reported_and_the_download_continues_once_there_is_room(cluster: Cluster, hub: None) -> None:
    wait_for("half of the model is there", lambda: len(begun(cluster, FILLED)) > 1, timeout=120)
    [pod] = cluster.pods("filled")
    say(python(cluster, pod, FILL))
    mend(cluster, FILLED)
    assert "Enlarge the volume" in wait_for_reason(cluster, "filled", "DiskFull")["message"]
    assert (python(cluster, pod, CACHED), is_ready(pod)) == ("0", False)
    python(cluster, pod, FREE)
    served(cluster, "filled")
    assert min(begun(cluster, FILLED)[1:]) > 0


def test_row_a_damaged_file_of_the_cache_is_fetched_again_and_only_that_one(cluster: Cluster, hub: None) -> None:
    before = len(asked(cluster, FILLED))
    python(cluster, served(cluster, "filled"), DAMAGE)
    after = served(cluster, "filled", restarts=1)
    again = asked(cluster, FILLED)[before:]
    assert {each.split()[0].rpartition("/")[2] for each in again} == {"model.safetensors"}
    assert python(cluster, after, CACHED) == "1"


def test_row_a_request_without_memory_fails_and_the_rest_goes_on(cluster: Cluster, hub: None) -> None:
    before, known = served(cluster, "scarce"), model.written(cluster)
    program = (manifests.INPOD / "scarce.py").read_text()
    command = (name_of(before), "--", manifests.PYTHON, "-", "scarce", known["question"])
    account = json.loads(cluster.kubectl("exec", "-i", *command, stdin=program).splitlines()[-1])
    say(str(account))
    assert account["statuses"] == [500, 200]
    assert set(account["texts"]) == {known["answer"]}
    assert account["bytes"][1] < account["bytes"][0] + GROWTH
    assert served(cluster, "scarce")["metadata"]["uid"] == before["metadata"]["uid"]
    assert cluster.metrics(name_of(before))[contract.KV_OCCUPANCY_RATIO] == 0.0


def test_row_metrics_that_lie_hold_the_replicas_until_they_are_right(
    cluster: Cluster, operator: Operator, lie: Lie
) -> None:
    wait_for("fewer replicas are due", lambda: time.monotonic() - lie.since > HELD, timeout=2 * HELD)
    assert measured(cluster) == "False"
    assert replicas(cluster) == len(LIES)
    assert {each["metadata"]["uid"] for each in serving(cluster)} == {each["metadata"]["uid"] for each in lie.pods}
    assert operator.leads()
    for pod in lie.pods:
        cluster.kubectl("exec", name_of(pod), "--", "rm", LIE)
    wait_for("MetricsAvailable is True", lambda: measured(cluster) == "True", timeout=60)
    wait_for("fewer replicas", lambda: replicas(cluster) < len(LIES), timeout=HELD + 60)


def hub_url(cluster: Cluster, port: int) -> str:
    """The hub with the fault of that port, as pods of the cluster reach it."""
    return f"http://{HUB}.{cluster.namespace}.svc:{port}"


def fetched(cluster: Cluster, name: str, port: int, overlay: Object | None = None, **fields: Object | str) -> Object:
    """A resource whose model is fetched from the hub at a port; `fields` of spec.model."""
    template = overlaid(overlay or {})
    template["env"].append({"name": contract.ENV_HUB_ENDPOINT, "value": hub_url(cluster, port)})
    source = {"uri": MODEL, "servedName": name, "dtype": "float32"} | fields
    return manifests.llm_deployment(name, model=source, engine=manifests.engine(template=template))


def overlaid(overlay: Object) -> Object:
    """The suite's template of an engine and an overlay, whose variables are added."""
    template: Object = manifests.engine()["template"]
    return template | overlay | {"env": [*template["env"], *overlay.get("env", ())]}


def asked(cluster: Cluster, port: int, verb: str = "asked") -> list[str]:
    """The requests for the model's files at a port of the hub."""
    control = f"/api/v1/namespaces/{cluster.namespace}/pods/{HUB}:{CONTROL_PORT}/proxy/{verb}/{port}"
    return list(cluster.get(control) or ())


def mend(cluster: Cluster, port: int) -> None:
    """End the fault of a port of the hub."""
    asked(cluster, port, "mend")


def begun(cluster: Cluster, port: int) -> list[int]:
    """The first byte of the weights that each download at a port asked for. Requests for their header have an end."""
    ranges = [each.partition("bytes=")[2] for each in asked(cluster, port) if "safetensors" in each]
    return [int(each.rstrip("-") or 0) for each in ranges if each == "" or each.endswith("-")]


def python(cluster: Cluster, pod: Object, program: str) -> str:
    """What a program prints in the engine's container."""
    return cluster.kubectl("exec", name_of(pod), "--", manifests.PYTHON, "-c", program).strip()


def served(cluster: Cluster, name: str, restarts: int = 0) -> Object:
    """Wait until the only pod of a resource is ready after so many restarts; returns it."""

    def ready() -> Object | None:
        pods = [pod for pod in cluster.pods(name) if is_ready(pod)]
        counts = [status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]]
        return pods[0] if pods and sum(counts) == restarts else None

    return wait_for(f"{name} is served", ready, timeout=RETRIED)


def token(name: str, value: str) -> Object:
    """A Secret with a token of the hub."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"token": value}}


def wait_for_reason(cluster: Cluster, name: str, reason: str) -> Object:
    """Wait until Ready is False for that reason; returns the condition."""

    def probe() -> Object | None:
        found = cluster.condition(name, "Ready")
        return found if (found.get("status"), found.get("reason")) == ("False", reason) else None

    found = wait_for(f"{name}: Ready=False {reason}", probe, timeout=RETRIED)
    say(f"{name}: {found['message']}")
    return found


def serving(cluster: Cluster) -> list[Object]:
    """The pods of the fleet that lies which are ready and not being deleted."""
    return [pod for pod in cluster.pods("lying") if is_ready(pod)]


def measured(cluster: Cluster) -> str:
    """The status of its condition MetricsAvailable; empty without one."""
    return str(cluster.condition("lying", "MetricsAvailable").get("status", ""))


def replicas(cluster: Cluster) -> int:
    """The replicas of its Deployment."""
    return int((cluster.deployment("lying") or {})["spec"]["replicas"])
