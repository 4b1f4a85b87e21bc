"""Part 2: scale-out, an operator killed between two writes, changing limits, scale-in, a rollout; no request may fail.

Streams continue while pods drain.
"""

from collections.abc import Callable, Iterator

import pytest

from e2e.framework import jobs
from e2e.framework.cluster import Cluster, Object, Recorder, is_ready, name_of, say, wait_for
from e2e.framework.operator_pod import Operator
from e2e.framework.settings import Settings
from sluice import contract
from tests.monitoring.prometheus import Prometheus

REQUESTS = 1100
CLIENTS = 40  # one replica runs about 16 at the ITL target, so these suffice for three
STREAMS = 6  # per pod during the scale-in; one of them may end by itself before the first poll
HELD = 5
# An ITL target at which one pod serves the streams of three, so that the scale-in is certain for any output lengths.
RELAXED = {"ttftMilliseconds": 2000, "itlMilliseconds": 250}
# An ITL target that about six streams of a pod meet (30 ms per step and 4 ms per stream). The limit falls to between
# MIN_CONCURRENCY and eight, so that MIN_CONCURRENCY running streams are half of it or more: the operator reports it.
TIGHT = {"ttftMilliseconds": 2000, "itlMilliseconds": 60}
HIGH_LIMIT = 16  # a limit under the relaxed targets even on a machine that is twice as slow
REPORT_SECONDS = 20.0  # the operator reports limits at most every 15 s, in passes of 5 s
MAX_REPLICAS = 3
# Expected sentences of the status for a changed limit, by reason. The fleet is complete, so no bound lowers the limit.
FELL = {"InterTokenLatency": "ITL nears its target"}
ROSE = {
    "Bounds": "bounds are open",
    "InterTokenLatency": "ITL has room",
    "KVOccupancy": "KV cache binds",
}
MIN_CONCURRENCY, MAX_CONCURRENCY = 4, 64  # chat's spec.admission.concurrency
DRAIN_SECONDS = 120  # chat's spec.rollout.drainSeconds
ACTS_AGAIN = 30.0  # seconds within which a new operator completes the work of a killed one
NEW_ARGUMENT = "--max-batched-tokens=256"
LATE_EXIT = 2.0  # seconds after the drain budget within which an engine must have exited


@pytest.fixture(scope="module")
def load(
    cluster: Cluster, operator: Operator, settings: Settings, recorder: Recorder, prometheus: Prometheus | None
) -> Iterator[jobs.Load]:
    """The load of this part, in a Job that runs during several tests, and is recorded."""
    yield jobs.start_load(cluster, "load", settings.image("engine"), "chat", requests=REQUESTS, clients=CLIENTS)


def test_load_adds_a_second_replica_and_the_status_gives_the_reason(cluster: Cluster, load: jobs.Load) -> None:
    wait_for("2 replicas asked for", lambda: replicas(cluster) == 2, timeout=240, every=0.5)
    decision = wait_for("the decision in the status", lambda: scale_up_in(cluster), timeout=120)
    say(f"{decision['reason']}: {decision['message']}")
    assert decision["from"] == 1
    assert decision["to"] >= 2
    assert decision["numbers"]
    wait_for("2 pods serve", lambda: serving(cluster) == 2, timeout=300)


def test_an_operator_killed_between_its_two_writes_is_replaced_by_one_that_completes_them(
    cluster: Cluster, operator: Operator, load: jobs.Load
) -> None:
    before = operator.pods()
    failed, restarts = operator.passes("error"), operator.restarts()
    with operator.without_status_writes():
        cluster.patch("llmd", "chat", {"spec": {"scaling": {"maxReplicas": MAX_REPLICAS}}})
        wait_for("3 replicas asked for", lambda: replicas(cluster) == 3, timeout=120, every=0.2)
        wait_for("the refused write is counted", lambda: operator.passes("error") > failed, timeout=20, every=0.2)
        assert operator.restarts() == restarts
        operator.kill()
        status = (cluster.resource("chat") or {})["status"]
        assert status["desiredReplicas"] == 2, "the status was written: the kill did not fall between the writes"
        assert load.is_running()
    operator.wait_ready(not_before=before)

    def recorded() -> bool:
        resource = cluster.resource("chat") or {}
        status = resource["status"]
        observed = status["observedGeneration"] == resource["metadata"]["generation"]
        return observed and status["desiredReplicas"] == replicas(cluster) == 3

    wait_for("spec, Deployment and status agree on 3", recorded, timeout=ACTS_AGAIN)
    wait_for("3 pods serve", lambda: serving(cluster) == 3, timeout=300)
    assert operator.restarts() == 0


def test_no_request_of_the_load_failed_and_every_text_was_right(load: jobs.Load) -> None:
    account = load.wait(timeout=900)
    assert account["requests"] >= REQUESTS
    assert account["failed"] in (0, [])


def test_the_load_lowered_the_limit_of_the_only_pod(recorder: Recorder) -> None:
    first = next(iter(recorder.values("limit ")))  # in the order in which the pods became ready
    two_at = next(at for at, what, value in recorder.seen if what == "ready" and value > 1)
    alone = [value for at, what, value in recorder.seen if what == first and at <= two_at]
    say(f"the limit of the only pod: {alone}")
    assert min(alone) < alone[0]


@pytest.fixture(scope="module")
def held_pods(cluster: Cluster) -> list[Object]:
    """The ready pods under the relaxed targets; the number of replicas is fixed until a test releases it."""
    pods = [pod for pod in cluster.pods("chat") if is_ready(pod)]
    assert len(pods) > 1
    held = {"minReplicas": len(pods), "maxReplicas": len(pods)}
    cluster.patch("llmd", "chat", {"spec": {"slo": RELAXED, "scaling": held}})
    return pods


def test_the_status_reports_that_a_tight_itl_target_lowers_the_limits_and_a_relaxed_one_raises_them(
    cluster: Cluster, settings: Settings, held_pods: list[Object], recorder: Recorder
) -> None:
    streams = jobs.start_client(
        cluster, "limited", settings.image("engine"), "chat",
        "--long", "--each", str(MIN_CONCURRENCY), "--pin", *addresses_of(held_pods),
    )  # fmt: skip
    wait_for("the limits are high", lambda: are_high_and_reported(recorder, held_pods), timeout=120)
    wait_for("every pod runs its streams", lambda: all_run(cluster, held_pods, MIN_CONCURRENCY), timeout=60)
    known = limit_moves(cluster)
    cluster.patch("llmd", "chat", {"spec": {"slo": TIGHT}})
    fall = wait_for(
        "the status reports the fall", lambda: new_move(cluster, known, lambda move: move["to"] < move["from"]), 60
    )
    check_report(fall, FELL)
    known = limit_moves(cluster)
    cluster.patch("llmd", "chat", {"spec": {"slo": RELAXED}})
    rise = wait_for(
        "the status reports the rise", lambda: new_move(cluster, known, lambda move: move["to"] > move["from"]), 90
    )
    check_report(rise, ROSE)
    admission = wait_for(
        "the status has the reason of the rise", lambda: admission_status(cluster, rise["reason"]), timeout=60
    )
    assert MIN_CONCURRENCY <= admission["concurrency"] <= MAX_CONCURRENCY
    account = streams.finish()
    assert account["failed"] == []


def test_a_relaxed_slo_scales_in_and_drains_a_pod_that_holds_streams(
    cluster: Cluster, settings: Settings, held_pods: list[Object], recorder: Recorder
) -> None:
    # The number of replicas is fixed until each pod has its streams.
    streams = jobs.start_client(
        cluster, "streams", settings.image("engine"), "chat",
        "--long", "--seconds", "400", "--each", str(STREAMS), "--pin", *addresses_of(held_pods),
    )  # fmt: skip
    wait_for("every pod holds its streams", lambda: all_run(cluster, held_pods, STREAMS), timeout=120)
    cluster.patch("llmd", "chat", {"spec": {"scaling": {"minReplicas": 1, "maxReplicas": MAX_REPLICAS}}})
    wait_for("a pod is deleted", lambda: leaving(cluster), timeout=360, every=0.5)
    addresses = {ip_of(pod) for pod in leaving(cluster)}
    wait_for("new connections go elsewhere", lambda: not addresses & cluster.endpoints("chat"), timeout=5, every=0.2)
    account = streams.wait(timeout=600)
    held = {what.removeprefix("leaving "): values for what, values in recorder.values("leaving ").items()}
    say(f"running requests of the deleted pods over time: {held}")
    assert max(max(values) for values in held.values()) >= HELD
    assert account["failed"] == []
    assert account["streams_pinned"] >= STREAMS * len(held_pods)
    assert scale_down_in(cluster)
    wait_for("the drained pods are gone", lambda: addresses.isdisjoint(map(ip_of, cluster.pods("chat"))), timeout=180)


def test_a_drained_pod_is_gone_within_its_budget(recorder: Recorder) -> None:
    wait_for("the recorder saw the end of a pod", lambda: recorder.gone, timeout=30)
    say(f"seconds from deletion to the end: {recorder.gone}")
    assert max(recorder.gone.values()) <= contract.DRAIN_GRACE_SECONDS + DRAIN_SECONDS + LATE_EXIT


def test_a_change_of_arguments_rolls_without_a_failed_request_and_ready_waits_for_it(
    cluster: Cluster, settings: Settings, recorder: Recorder
) -> None:
    # A change of the count would be a further generation of the Deployment, and would take pods away.
    cluster.patch("llmd", "chat", {"spec": {"scaling": {"minReplicas": 2, "maxReplicas": 2}}})
    wait_for("2 pods and no other", lambda: serving(cluster) == len(cluster.pods("chat")) == 2, timeout=240)
    old = {name_of(pod) for pod in cluster.pods("chat")}
    light = jobs.start_client(cluster, "light", settings.image("engine"), "chat", "--each", "3")
    began = recorder.now()
    cluster.patch("llmd", "chat", {"spec": {"engine": {"scheduling": {"maxBatchedTokens": 256}}}})
    cluster.kubectl("wait", "llmd/chat", "--for=condition=Ready", "--timeout=400s", timeout=420)
    deployment = cluster.deployment("chat") or {}
    new = [pod for pod in cluster.pods("chat") if name_of(pod) not in old]
    say(f"Ready is True again: {[name_of(pod) for pod in new if is_ready(pod)]} of {deployment['status']}")
    assert deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"]
    assert deployment["status"].get("updatedReplicas", 0) >= deployment["spec"]["replicas"]
    assert any(is_ready(pod) and NEW_ARGUMENT in arguments(pod) for pod in new)

    def rolled() -> bool:
        pods = cluster.pods("chat")
        return bool(pods) and all(is_ready(pod) for pod in pods) and old.isdisjoint(name_of(pod) for pod in pods)

    wait_for("only new pods serve", rolled, timeout=400)
    assert NEW_ARGUMENT in arguments(cluster.pods("chat")[0])
    account = light.finish()
    assert account["failed"] == []
    assert account["requests"] >= 10
    assert 0.0 not in recorder.values("condition Available", since=began).get("condition Available", [])


def test_a_new_version_that_cannot_start_is_available_and_not_ready(cluster: Cluster) -> None:
    good = (cluster.resource("chat") or {})["spec"]["model"]
    serving_before = {name_of(pod) for pod in cluster.pods("chat") if is_ready(pod)}
    cluster.patch("llmd", "chat", {"spec": {"model": good | {"uri": "pvc://models/no-such-model"}}})
    generation = (cluster.resource("chat") or {})["metadata"]["generation"]

    def stalled() -> Object | None:
        found = cluster.condition("chat", "Ready")
        judged = found.get("observedGeneration") == generation and found.get("reason") == "RolloutStalled"
        return found if judged and found["status"] == "False" else None

    try:
        found = wait_for("chat: Ready=False RolloutStalled", stalled, timeout=120)
        say(found["message"])
        assert "ModelNotFound" in found["message"]
        assert cluster.condition("chat", "Available")["status"] == "True"
        assert serving_before & {name_of(pod) for pod in cluster.pods("chat") if is_ready(pod)}
        cluster.patch("llmd", "chat", {"spec": {"rollout": {"rollback": "Auto", "progressDeadlineSeconds": 10}}})
        wait_for("the pods went back", lambda: cluster.condition("chat", "Ready")["reason"] == "RolledBack", timeout=90)
        wait_for("only old pods are left", lambda: serving_before >= {*map(name_of, cluster.pods("chat"))}, timeout=60)
        say(cluster.condition("chat", "Ready")["message"])
        assert cluster.condition("chat", "Available")["status"] == "True"
    finally:
        cluster.patch("llmd", "chat", {"spec": {"model": good, "rollout": {"progressDeadlineSeconds": 600}}})
    cluster.kubectl("wait", "llmd/chat", "--for=condition=Ready", "--timeout=120s", timeout=140)
    assert serving_before & {name_of(pod) for pod in cluster.pods("chat") if is_ready(pod)}


def replicas(cluster: Cluster) -> int:
    """The Deployment's spec.replicas."""
    return int((cluster.deployment("chat") or {}).get("spec", {}).get("replicas", 0))


def arguments(pod: Object) -> list[str]:
    """The engine's arguments."""
    found: list[str] = pod["spec"]["containers"][0]["args"]
    return found


def ip_of(pod: Object) -> str:
    """The pod's address; empty before it has one."""
    return str(pod["status"].get("podIP", ""))


def work(cluster: Cluster, pod: Object) -> float:
    """Requests that the pod runs now."""
    return cluster.metrics(name_of(pod)).get(contract.REQUESTS_RUNNING, 0.0)


def limit(cluster: Cluster, pod: Object) -> float:
    """The pod's current concurrency limit; 0 if it does not answer."""
    return cluster.metrics(name_of(pod)).get(f'{contract.ADMISSION_LIMIT}{{kind="concurrency"}}', 0.0)


def addresses_of(pods: list[Object]) -> list[str]:
    """The base URLs of the pods' engines."""
    return [f"http://{ip_of(pod)}:8000" for pod in pods]


def all_run(cluster: Cluster, pods: list[Object], streams: int) -> bool:
    """True if each pod runs at least this many requests."""
    return all(work(cluster, pod) >= streams for pod in pods)


def are_high_and_reported(recorder: Recorder, pods: list[Object]) -> bool:
    """True if every pod's limit was HIGH_LIMIT or more for REPORT_SECONDS, so that a fall is measured from there."""
    since = recorder.now() - REPORT_SECONDS
    for pod in pods:
        changes = [(at, value) for at, what, value in list(recorder.seen) if what == f"limit {name_of(pod)}"]
        in_force = [value for at, value in changes if at <= since][-1:]
        later = [value for at, value in changes if at > since]
        if not in_force or min(in_force + later) < HIGH_LIMIT:
            return False
    return True


def leaving(cluster: Cluster) -> list[Object]:
    """Pods that are being deleted."""
    return [pod for pod in cluster.pods("chat") if "deletionTimestamp" in pod["metadata"]]


def serving(cluster: Cluster) -> int:
    """Number of pods that are ready and not being deleted."""
    return sum(is_ready(pod) for pod in cluster.pods("chat"))


def decisions(cluster: Cluster, dial: str) -> list[Object]:
    """The decisions on `replicas` or `admission` in the status."""
    status = (cluster.resource("chat") or {}).get("status", {})
    return [entry for entry in status.get("decisions", []) if entry["kind"] == dial]


def limit_moves(cluster: Cluster) -> list[Object]:
    """The reported changes of the limit."""
    return [entry for entry in decisions(cluster, "admission") if entry["from"] != entry["to"]]


def new_move(cluster: Cluster, known: list[Object], matches: Callable[[Object], bool]) -> Object | None:
    """The first reported change of the limit that is not in `known` and matches."""
    return next((move for move in limit_moves(cluster) if move not in known and matches(move)), None)


def check_report(move: Object, sentences: dict[str, str]) -> None:
    """Check the sentence and the numbers of a reported change of the limit."""
    say(f"{move['reason']}: {move['message']}")
    assert move["reason"] in sentences
    change = f"{move['from']} → {move['to']} requests at once per replica"
    assert f"{change}: {sentences[move['reason']]}." in move["message"]
    assert move["numbers"]


def admission_status(cluster: Cluster, reason: str) -> Object | None:
    """status.admission, once it has this reason."""
    found: Object = (cluster.resource("chat") or {}).get("status", {}).get("admission", {})
    return found if found.get("reason") == reason else None


def scale_up_in(cluster: Cluster) -> Object | None:
    """The decision that scaled up a fleet of at least one replica."""
    return next((entry for entry in decisions(cluster, "replicas") if entry["to"] > entry["from"] > 0), None)


def scale_down_in(cluster: Cluster) -> Object | None:
    """The decision that scaled down."""
    return next((entry for entry in decisions(cluster, "replicas") if entry["to"] < entry["from"]), None)
