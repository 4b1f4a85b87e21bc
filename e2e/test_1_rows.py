"""Part 1, continued: rows of the acceptance table on resources, each by a resource of its own beside `chat`."""

import hashlib
import json
import urllib.request
from collections.abc import Iterator

import pytest

from e2e.framework import manifests
from e2e.framework.cluster import CUSTOM, Cluster, Object, is_ready, name_of, say, wait_for
from e2e.framework.operator_pod import Operator
from sluice import contract
from sluice_operator.cluster.kinds import path
from tests.kube.child_state import CHILDREN, state_of

RESTORED = 30.0  # seconds within which the operator restores what was changed by hand
FLIPS = 100
MOST_ROLLOUTS = 30  # of FLIPS
KEYS = ("e2e-key-before-the-rotation", "e2e-key-after-the-rotation")
KUBELET_SYNC = 100.0  # seconds: the kubelet updates a volume within one and a half of its sync periods of 60 s
ASLEEP: Object = {"scaling": {"mode": "External"}, "replicas": 0}
RICH: Object = {
    "kvCache": {"memoryPercent": 70},
    "scheduling": {"policy": "fair", "maxNumSeqs": 16},
    "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
    "template": {
        "annotations": {"example.com/team": "chat"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "example.com/reserved", "operator": "Exists"}],
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.invalid"}],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    },
}
TURNS: dict[str, tuple[Object, Object]] = {  # the specs A and B of each resource
    "turned-engine": ({}, {"engine": manifests.engine(**RICH)}),
    "turned-source": (
        {"auth": {"apiKeysSecretRef": {"name": "keys"}}},
        {
            "model": {
                "uri": "s3://bucket/folder",
                "servedName": "turned-source",
                "credentialsSecretRef": {"name": "bucket"},
                "cache": {"claim": "models"},
            }
        },
    ),
    "turned-rollout": (
        {"rollout": {"maxSurge": 2, "maxUnavailable": 1, "drainSeconds": 40}, "admission": {"mode": "Off"}},
        {"slo": {"ttftMilliseconds": 700, "itlMilliseconds": 30}, "admission": {"mode": "Fixed"}},
    ),
}
REST = 6  # looks at the children, a second apart, that show no difference
ASK = """
import urllib.error, urllib.request
request = urllib.request.Request("http://127.0.0.1:8000/v1/models", headers={"Authorization": "Bearer " + %r})
try:
    print(urllib.request.urlopen(request).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.fixture(scope="module")
def beside(cluster: Cluster, operator: Operator) -> Iterator[None]:
    """Resources with a fault each, and one without replicas."""
    cluster.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}, "spec": {"ports": [{"port": 80}]}}
    )
    asleep = {"mode": "External"}
    zone = {"cron": "0 8 * * *", "durationSeconds": 3600, "minReplicas": 2, "timezone": "Europe/Atlantis"}
    faulty: dict[str, Object] = {
        "cramped": {"engine": manifests.engine(kvCache={"size": "64Gi"})},
        "imageless": {"engine": manifests.engine(image="registry.invalid/sluice/engine:none")},
        "keyed": {"auth": {"apiKeysSecretRef": {"name": "keys"}}},
        "taken": {"scaling": asleep, "replicas": 0},
        "twin": {"model": {"uri": "pvc://models/tiny", "servedName": "chat"}, "scaling": asleep, "replicas": 0},
        "zoned": {"scaling": {"mode": "Auto", "minReplicas": 0, "maxReplicas": 2, "schedules": [zone]}},
        "flipped": {"scaling": asleep, "replicas": 0},
    }
    cluster.apply(*(manifests.llm_deployment(name, **spec) for name, spec in faulty.items()))
    yield
    cluster.kubectl("delete", "llmd", *faulty, "--timeout=100s")
    cluster.kubectl("delete", "service/taken", "secret/keys", "--ignore-not-found")


def test_row_of_two_resources_with_one_served_name_the_second_conflicts(cluster: Cluster, beside: None) -> None:
    found = wait_for_reason(cluster, "twin", "Conflict")
    assert "chat" in found["message"]
    assert cluster.deployment("twin") is None
    assert cluster.condition("chat", "Ready")["status"] == "True"


def test_row_a_foreign_object_with_a_childs_name_is_not_adopted(cluster: Cluster, beside: None) -> None:
    found = wait_for_reason(cluster, "taken", "Conflict")
    assert "Service" in found["message"]
    service = cluster.get(f"/api/v1/namespaces/{cluster.namespace}/services/taken") or {}
    assert "ownerReferences" not in service["metadata"]
    assert "selector" not in service["spec"]


def test_row_a_schedule_in_an_unknown_time_zone_is_out_and_a_condition_names_it(cluster: Cluster, beside: None) -> None:
    found = wait_for("a message of ScalingActive", lambda: cluster.condition("zoned", "ScalingActive"), timeout=30)
    assert "schedules[0].timezone" in found["message"]
    assert "Europe/Atlantis" in found["message"]


def test_row_a_spec_flipped_100_times_ends_with_the_last_one_after_few_rollouts(cluster: Cluster, beside: None) -> None:
    wait_for("a Deployment", lambda: cluster.deployment("flipped"), timeout=60)
    before = (cluster.deployment("flipped") or {})["metadata"]["generation"]
    for number in range(FLIPS):
        flip(cluster, 8 + number)
    last = f"--max-num-seqs={8 + FLIPS - 1}"

    def arguments() -> list[str]:
        found: list[str] = (cluster.deployment("flipped") or {})["spec"]["template"]["spec"]["containers"][0]["args"]
        return found

    wait_for("the last spec is rendered", lambda: last in arguments(), timeout=RESTORED)
    rollouts = (cluster.deployment("flipped") or {})["metadata"]["generation"] - before
    say(f"{FLIPS} specs, {rollouts} changes of the Deployment")
    assert 1 <= rollouts <= MOST_ROLLOUTS


def test_row_a_status_edited_by_hand_is_overwritten(cluster: Cluster, beside: None) -> None:
    edited = json.dumps({"status": {"readyReplicas": 99, "conditions": []}})
    cluster.kubectl("patch", "llmd", "chat", "--subresource=status", "--type=merge", "-p", edited)

    def is_overwritten() -> bool:
        status = (cluster.resource("chat") or {})["status"]
        return status["readyReplicas"] == 1 and cluster.condition("chat", "Ready").get("status") == "True"

    wait_for("the status is the operator's again", is_overwritten, timeout=RESTORED)


def test_row_a_paused_resource_is_not_written_and_a_condition_says_so(
    cluster: Cluster, operator: Operator, beside: None
) -> None:
    service = f"/api/v1/namespaces/{cluster.namespace}/services/chat-engines"
    cluster.patch("llmd", "chat", {"spec": {"paused": True}})
    wait_for("Paused is True", lambda: cluster.condition("chat", "Paused").get("status") == "True", timeout=30)
    cluster.kubectl("delete", "service", "chat-engines")
    operator.wait_for_passes(16)
    assert cluster.get(service) is None
    cluster.patch("llmd", "chat", {"spec": {"paused": False}})
    wait_for("the child is restored", lambda: cluster.get(service), timeout=RESTORED)


def test_row_a_missing_image_is_reported(cluster: Cluster, beside: None) -> None:
    found = wait_for_reason(cluster, "imageless", "ImagePullFailed")
    assert "registry.invalid/sluice/engine:none" in found["message"]


def test_row_a_kv_cache_larger_than_the_memory_is_reported_with_numbers(cluster: Cluster, beside: None) -> None:
    found = wait_for_reason(cluster, "cramped", "InsufficientMemory")
    assert "64 GiB" in found["message"]


def test_row_api_keys_are_rotated_without_a_restart_and_missing_ones_fail_closed(
    cluster: Cluster, beside: None
) -> None:
    wait_for_reason(cluster, "keyed", "SecretNotFound")
    assert not any(map(is_ready, cluster.pods("keyed")))
    cluster.apply(secret(KEYS[0]))
    wait_for("a pod with keys serves", lambda: any(map(is_ready, cluster.pods("keyed"))), timeout=240)
    [pod] = [each for each in cluster.pods("keyed") if is_ready(each)]
    assert [asked(cluster, pod, key) for key in KEYS] == [200, 401]
    cluster.apply(secret(KEYS[1]))
    cluster.kubectl("annotate", "pod", name_of(pod), "example.com/synced=yes")  # its volumes are updated at once
    wait_for("the new key is accepted", lambda: asked(cluster, pod, KEYS[1]) == 200, timeout=KUBELET_SYNC)
    assert asked(cluster, pod, KEYS[0]) == 401
    [after] = [each for each in cluster.pods("keyed") if is_ready(each)]
    assert [restarts(each) for each in (after, pod)] == [restarts(pod)] * 2
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]


def test_row_a_changed_to_b_equals_a_fresh_b_and_changed_back_equals_a(cluster: Cluster, operator: Operator) -> None:
    first = turned(cluster, 0)
    changed = turned(cluster, 1)
    back = turned(cluster, 0)
    old = uids(cluster)
    cluster.kubectl("delete", "llmd", *TURNS, "--timeout=60s")
    wait_for("their children are gone", lambda: not any(children(cluster, uid) for uid in old), timeout=60)
    fresh = turned(cluster, 1)
    cluster.kubectl("delete", "llmd", *TURNS, "--wait=false")
    assert all(first[name] != changed[name] for name in TURNS)
    assert back == first
    assert changed == fresh


def turned(cluster: Cluster, turn: int) -> dict[str, Object]:
    """The state of each resource of TURNS, once all have that spec and their children rest."""
    cluster.apply(*(manifests.llm_deployment(name, **ASLEEP, **specs[turn]) for name, specs in TURNS.items()))
    seen: list[dict[str, Object]] = []

    def is_observed(name: str) -> bool:
        resource = cluster.resource(name) or {}
        return resource.get("status", {}).get("observedGeneration") == resource["metadata"]["generation"]

    def at_rest() -> dict[str, Object] | None:
        if not all(map(is_observed, TURNS)):
            return None
        seen.append({name: state(cluster, name) for name in TURNS})
        return seen[-1] if seen[-REST:] == [seen[-1]] * REST else None

    return wait_for(f"{len(TURNS)} resources rest with spec {'AB'[turn]}", at_rest, timeout=60)


def uids(cluster: Cluster) -> list[str]:
    """The uid of each resource of TURNS."""
    return [(cluster.resource(name) or {})["metadata"]["uid"] for name in TURNS]


def children(cluster: Cluster, uid: str) -> list[Object]:
    """Every object of the namespace whose owner has that uid."""
    found = ((kind, cluster.get(path(kind, cluster.namespace)) or {}) for kind in CHILDREN)
    objects = ({"kind": kind} | each for kind, listed in found for each in listed["items"])
    return [each for each in objects if uid in (o["uid"] for o in each["metadata"].get("ownerReferences") or ())]


def state(cluster: Cluster, name: str) -> Object:
    """The children of a resource, without what differs between it and another one of its name."""
    uid = (cluster.resource(name) or {})["metadata"]["uid"]
    found = children(cluster, uid)
    pods = [each["spec"]["template"]["spec"] for each in found if each["kind"] == "Deployment"]
    secrets = {
        volume["secret"]["secretName"] for pod in pods for volume in pod["volumes"] if volume["name"] == "admin-token"
    }
    return state_of(found, dict.fromkeys(secrets, "SECRET") | {uid: "UID"})


def wait_for_reason(cluster: Cluster, name: str, reason: str) -> Object:
    """Wait until Ready is False for that reason; returns the condition."""

    def probe() -> Object | None:
        found = cluster.condition(name, "Ready")
        return found if (found.get("status"), found.get("reason")) == ("False", reason) else None

    found = wait_for(f"{name}: Ready=False {reason}", probe, timeout=120)
    say(f"{name}: {found['message']}")
    return found


def flip(cluster: Cluster, sequences: int) -> None:
    """Change the spec of `flipped`, without the time that a process of kubectl takes."""
    where = f"{cluster.api}{CUSTOM}/namespaces/{cluster.namespace}/{contract.PLURAL}/flipped"
    body = json.dumps({"spec": {"engine": {"scheduling": {"maxNumSeqs": sequences}}}}).encode()
    headers = {"Content-Type": "application/merge-patch+json"}
    request = urllib.request.Request(where, data=body, headers=headers, method="PATCH")
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()


def secret(key: str) -> Object:
    """The key file with one key."""
    file = json.dumps([{"name": "e2e", "sha256": hashlib.sha256(key.encode()).hexdigest()}])
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"keys.yaml": file}}


def asked(cluster: Cluster, pod: Object, key: str) -> int:
    """The HTTP status of a request with that key, from within the pod: the API server's proxy drops the header."""
    return int(cluster.kubectl("exec", name_of(pod), "--", manifests.PYTHON, "-c", ASK % key))


def restarts(pod: Object) -> int:
    """Restarts of its containers."""
    return sum(status["restartCount"] for status in pod["status"]["containerStatuses"])
