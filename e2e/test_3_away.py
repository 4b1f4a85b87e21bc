"""Part 3: external changes to children, and an absent operator; recovery times have upper bounds.

The operator is absent for longer than the TTL of any limit. The bounds are those of the acceptance tables.
"""

import time
from collections.abc import Iterator

import pytest

from e2e.framework import manifests
from e2e.framework.cluster import CUSTOM, Cluster, Object, Recorder, is_ready, name_of, say, wait_for
from e2e.framework.operator_pod import Operator, most_memory
from sluice import contract

RESTORED = 30.0  # seconds within which a child is restored
SLO = {"ttftMilliseconds": 3000, "itlMilliseconds": 120}  # values that differ from the engine's defaults
LEAST_AWAY = 45.0  # seconds: longer than the TTL of limits at the default interval
KUBELET_SYNC = 100.0  # seconds: the kubelet updates a volume within one and a half of its sync periods of 60 s
CROWD = 60  # paused resources that exist when an operator starts
STABILISATION = 30.0  # seconds: chat's scaleDownStabilizationSeconds
REMEMBERED = 60.0  # seconds: chat's burstMemorySeconds, for which a new operator keeps what its predecessor remembered
GROWTH = 10e6  # bytes that a repetition of the same work may add


def test_children_changed_by_hand_are_restored_in_time_and_foreign_fields_stay(cluster: Cluster) -> None:
    cluster.kubectl("annotate", "service", "chat", "example.com/kept=yes")
    cluster.patch("service", "chat", {"spec": {"selector": {"app.kubernetes.io/instance": "nowhere"}}})
    cluster.patch("deployment", "chat", {"spec": {"revisionHistoryLimit": 7}})
    volumes = (cluster.deployment("chat") or {})["spec"]["template"]["spec"]["volumes"]
    (secret,) = (each["secret"]["secretName"] for each in volumes if each["name"] == "admin-token")
    cluster.kubectl("delete", "serviceaccount/chat-engine", "poddisruptionbudget/chat", "service/chat-engines")
    cluster.kubectl("delete", "configmap/chat-targets", f"secret/{secret}")

    def restored() -> bool:
        service, deployment = child(cluster, "services", "chat"), cluster.deployment("chat") or {}
        return (
            service["spec"]["selector"]["app.kubernetes.io/instance"] == "chat"
            and deployment["spec"]["revisionHistoryLimit"] == 3
            and all(
                child(cluster, kind, name)
                for kind, name in (
                    ("serviceaccounts", "chat-engine"),
                    ("services", "chat-engines"),
                    ("configmaps", "chat-targets"),
                    ("secrets", secret),
                    ("configmaps", secret),  # which is deleted with the Secret, and shows that to the operator
                )
            )
            and "poddisruptionbudget" in cluster.kubectl("get", "pdb", "chat", "-o", "name", "--ignore-not-found")
        )

    wait_for("seven children are as they were", restored, timeout=RESTORED)
    assert child(cluster, "services", "chat")["metadata"]["annotations"]["example.com/kept"] == "yes"


@pytest.fixture(scope="module")
def away(cluster: Cluster, operator: Operator) -> Iterator[list[Object]]:
    """Two replicas with targets of their own and no operator, while the spec, children and other resources change.

    Yields the two pods. At the end an operator runs again in any case.
    """
    cluster.patch("llmd", "chat", {"spec": {"slo": SLO, "scaling": {"minReplicas": 2}}})
    cluster.apply(manifests.llm_deployment("spare", scaling={"mode": "External"}, replicas=0))
    wait_for("2 pods serve", lambda: len(serving(cluster)) == 2, timeout=300)
    wait_for("the engines have the new targets", lambda: all(map(has_targets, limits(cluster))), timeout=120)
    wait_for("spare has its children", lambda: child(cluster, "services", "spare"), timeout=60)
    # The kubelet updates the volumes of a changed pod at once, else after KUBELET_SYNC.
    cluster.kubectl("annotate", "pods", "-l", f"{contract.LABEL_INSTANCE}=chat", "example.com/synced=yes")
    pods = serving(cluster)
    operator.stop()
    try:
        cluster.patch("llmd", "chat", {"spec": {"scaling": {"minReplicas": 1}}})
        cluster.kubectl("delete", "service", "chat-engines")
        cluster.apply(*(crowd_member(number) for number in range(CROWD)))
        yield pods
    finally:
        if not operator.pods():
            operator.start()


def test_engines_keep_the_specs_targets_when_no_operator_sends_limits(cluster: Cluster, away: list[Object]) -> None:
    began = time.monotonic()

    def expired() -> list[Object] | None:
        found = limits(cluster)
        over = all(each and each["ttl_seconds"] is None for each in found)
        return found if over and time.monotonic() - began > LEAST_AWAY else None

    at_expiry = wait_for("no limit that an operator sent is in force", expired, timeout=120)
    say(f"limits when the last TTL ended: {at_expiry}")
    # The pod that is older than the new targets reads them when the kubelet next updates its ConfigMap volume.
    wait_for("the engines have the new targets", lambda: all(map(has_targets, limits(cluster))), timeout=KUBELET_SYNC)
    seen = limits(cluster)
    say(f"limits without an operator: {seen}")
    assert all(each["ttl_seconds"] is None for each in seen), seen
    assert [each["metadata"]["uid"] for each in serving(cluster)] == [pod["metadata"]["uid"] for pod in away]


def test_a_resource_deleted_without_an_operator_takes_its_children_along(cluster: Cluster, away: list[Object]) -> None:
    cluster.kubectl("delete", "llmd", "spare", "--timeout=30s")
    wait_for("nothing of spare is left", lambda: not child(cluster, "services", "spare"), timeout=60)


@pytest.fixture(scope="module")
def started(away: list[Object]) -> float:
    """The monotonic time before the new operator is started: nothing that it observes is older."""
    return time.monotonic()


@pytest.fixture(scope="module")
def returned(operator: Operator, started: float) -> float:
    """The monotonic time at which the new operator was seen to be ready."""
    operator.start()
    return time.monotonic()


def test_a_restarted_operator_acts_on_everything_in_time(cluster: Cluster, operator: Operator, returned: float) -> None:
    left = RESTORED - (time.monotonic() - returned)
    wait_for("the deleted child is back", lambda: child(cluster, "services", "chat-engines"), timeout=left)
    left = RESTORED - (time.monotonic() - returned)
    wait_for(f"{CROWD} resources have a status", lambda: unseen(cluster) == 0, timeout=left)


def test_a_restarted_operator_scales_in_only_after_a_full_window(
    cluster: Cluster, started: float, returned: float, recorder: Recorder
) -> None:
    began = recorder.now() - (time.monotonic() - started)
    wait_for("1 replica", lambda: len(cluster.pods("chat")) == len(serving(cluster)) == 1, timeout=REMEMBERED + 300)
    fell = next(at for at, what, value in recorder.seen if at > began and (what, value) == ("replicas", 1.0))
    say(f"replicas fell {fell - began:.0f} s after the operator's start\n{cluster.kubectl('get', 'llmd', 'chat')}")
    for entry in (cluster.resource("chat") or {})["status"]["decisions"]:
        say(f"  {entry['time']} {entry['kind']} {entry.get('from')} → {entry.get('to')}: {entry['message']}")
    assert fell - began >= STABILISATION


def test_the_operators_memory_stays_within_its_share_and_flat(
    cluster: Cluster, operator: Operator, returned: float
) -> None:
    first = operator.memory()
    cluster.kubectl("delete", "llmd", "-l", "crowd=yes", "--wait=false")
    wait_for("the crowd is gone", lambda: not crowd(cluster), timeout=60)
    cluster.apply(*(crowd_member(number) for number in range(CROWD)))
    wait_for(f"{CROWD} resources have a status", lambda: unseen(cluster) == 0, timeout=60)
    second = operator.memory()
    say(f"operator with {CROWD} resources: {first}; with as many new ones: {second}")
    cluster.kubectl("delete", "llmd", "-l", "crowd=yes", "--wait=false")
    assert second.peak < most_memory(CROWD)
    assert second.now <= first.peak + GROWTH


def child(cluster: Cluster, kind: str, name: str) -> Object:
    """An object of the core group; empty if it does not exist."""
    return cluster.get(f"/api/v1/namespaces/{cluster.namespace}/{kind}/{name}") or {}


def serving(cluster: Cluster) -> list[Object]:
    """chat's pods that are ready and not being deleted."""
    return [pod for pod in cluster.pods("chat") if is_ready(pod)]


def limits(cluster: Cluster) -> list[Object]:
    """The response to GET /limits of each of chat's ready pods."""
    return [cluster.limits(name_of(pod)) for pod in serving(cluster)]


def has_targets(limits: Object) -> bool:
    """True if an engine uses the spec's targets."""
    found = (limits.get("ttft_target_ms"), limits.get("itl_target_ms"))
    return found == (SLO["ttftMilliseconds"], SLO["itlMilliseconds"])


def crowd_member(number: int) -> Object:
    """A paused resource: the operator reads it and writes a status, and creates no children."""
    member = manifests.llm_deployment(f"crowd-{number}", paused=True)
    member["metadata"]["labels"] = {"crowd": "yes"}
    return member


def crowd(cluster: Cluster) -> list[Object]:
    """The existing paused resources."""
    found = cluster.get(f"{CUSTOM}/namespaces/{cluster.namespace}/{contract.PLURAL}?labelSelector=crowd%3Dyes")
    return list((found or {}).get("items", []))


def unseen(cluster: Cluster) -> int:
    """How many paused resources have no status yet."""
    return CROWD - sum("observedGeneration" in each.get("status", {}) for each in crowd(cluster))
