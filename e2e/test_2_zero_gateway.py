"""Part 2, continued: 0 → 1 → 3 → 1 → 0 replicas through the gateways, by the official client, while pods are deleted.

The clients start while there is no replica, so all of their first requests are held.
"""

from collections.abc import Iterator

import pytest

from e2e.framework import images, jobs, manifests
from e2e.framework.cluster import Cluster, Object, is_ready, name_of, run, say, wait_for
from e2e.framework.operator_pod import Operator
from e2e.framework.settings import Settings

NAME = "zero"
SLO: Object = {"ttftMilliseconds": 2000, "itlMilliseconds": 60}
CLIENTS = 40  # one replica runs about 7 at the ITL target, so that the need of three is soon clear
SECONDS = 120  # at most; the load ends when all that was deleted is replaced
REPLACED = 60.0  # seconds for a new gateway
SCALING: Object = {
    "mode": "Auto",
    "minReplicas": 0,
    "maxReplicas": 3,
    "scaleDownStabilizationSeconds": 10,
    "burstMemorySeconds": 60,
    "scaleToZeroAfterSeconds": 10,
}


@pytest.fixture(scope="module")
def load(cluster: Cluster, operator: Operator, settings: Settings) -> Iterator[jobs.Load]:
    """The clients, from the moment on at which there is a model and no replica."""
    client = images.make_client(settings)
    cluster.apply(manifests.llm_deployment(NAME, slo=SLO, scaling=SCALING | {"mode": "External"}, replicas=0))
    wait_for("a Deployment without a pod", lambda: replicas(cluster) == 0, timeout=60, every=0.5)
    cluster.patch("llmd", NAME, {"spec": {"scaling": {"mode": "Auto"}}})
    operator.wait_for_passes(2)
    assert replicas(cluster) == 0, "a model without a replica is not started before a request"
    yield jobs.start_official(cluster, "official", client, NAME, operator.gateway_url, CLIENTS, SECONDS)
    cluster.kubectl("delete", "llmd", NAME, "--timeout=100s")


def test_requests_held_at_zero_start_one_replica(cluster: Cluster, load: jobs.Load) -> None:
    wait_for("a replica asked for", lambda: replicas(cluster) or None, timeout=20, every=0.2)
    decision = wait_for("the decision in the status", lambda: next(iter(wakes(cluster)), None), timeout=60)
    say(decision["message"])
    assert (decision["from"], decision["to"]) == (0, 1)
    assert float(decision["numbers"]["held"]) >= 1.0
    wait_for("1 pod serves", lambda: len(serving(cluster)) >= 1, timeout=120)


def test_the_load_adds_two_replicas_while_a_gateway_and_an_engine_are_deleted(
    cluster: Cluster, operator: Operator, load: jobs.Load
) -> None:
    wait_for("3 replicas asked for", lambda: replicas(cluster) == 3, timeout=SECONDS, every=0.5)
    [gateway, *_] = operator.gateways()
    run("kubectl", "-n", operator.namespace, "delete", "pod", name_of(gateway), "--wait=false")
    wait_for("3 pods serve", lambda: len(serving(cluster)) == 3, timeout=120)
    [engine, *_] = serving(cluster)
    cluster.kubectl("delete", "pod", name_of(engine), "--wait=false")
    assert load.is_running(), "the pods were deleted after the load had ended"
    wait_for("2 gateways serve", lambda: sum(map(is_ready, operator.gateways())) == 2, timeout=REPLACED)
    wait_for("3 pods serve again", lambda: len(serving(cluster)) == 3, timeout=120)


def test_no_request_of_the_official_client_failed(load: jobs.Load) -> None:
    account = load.finish()
    assert account["failed"] == []
    assert account["requests"] > 5 * CLIENTS


def test_without_requests_the_last_replica_goes_too_and_one_request_had_started_it(cluster: Cluster) -> None:
    seen: list[int] = []

    def ended() -> bool:
        now = replicas(cluster)
        if now not in seen[-1:]:
            seen.append(now)
        return now == 0

    wait_for("0 replicas", ended, timeout=200, every=0.5)
    say(f"replicas went {seen}")
    for entry in (cluster.resource(NAME) or {})["status"]["decisions"]:
        say(f"  {entry['time']} {entry['kind']} {entry.get('from')} → {entry.get('to')}: {entry['message']}")
    assert seen in ([3, 2, 1, 0], [2, 1, 0], [1, 0])
    wait_for("the last pod is gone", lambda: not cluster.pods(NAME), timeout=150)
    assert cluster.condition(NAME, "Ready")["reason"] == "Asleep"
    assert len(wakes(cluster)) == 1


def replicas(cluster: Cluster) -> int:
    """The Deployment's replicas; -1 without one."""
    return int((cluster.deployment(NAME) or {"spec": {"replicas": -1}})["spec"]["replicas"])


def serving(cluster: Cluster) -> list[Object]:
    """The pods that are ready and not being deleted."""
    return [pod for pod in cluster.pods(NAME) if is_ready(pod)]


def wakes(cluster: Cluster) -> list[Object]:
    """The recorded decisions that started the model for held requests."""
    decisions = ((cluster.resource(NAME) or {}).get("status") or {}).get("decisions", [])
    return [one for one in decisions if one["reason"] == "Wake"]
