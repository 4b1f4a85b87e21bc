"""Part 3, continued: a changed spec is tried on a share of the requests, and promoted or rolled back by what its pods show.

Official clients send through the gateway all the while, and no request fails but at pods that answer errors.
"""

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from e2e.framework import images, jobs, manifests
from e2e.framework.cluster import Cluster, Object, is_ready, name_of, say, wait_for
from e2e.framework.operator_pod import Operator
from e2e.framework.settings import Settings
from sluice import contract

CLIENTS = 12
AT_MOST = 900  # seconds of the load; the last test ends it
SLO = {"ttftMilliseconds": 3000, "itlMilliseconds": 120}  # met with all clients on one pod: 30 ms and 12 times 4 ms
CANARY = {
    "weightPercent": 25,
    "steps": 1,
    "intervalSeconds": 10,
    "maxErrorPercent": "1",
    "minAttainmentPercent": "60",
}
LEAST_REQUESTS = 40  # from which on the share is judged
LEAST, MOST = 0.10, 0.45  # of 40 requests at 25 %: more than two standard deviations on each side
SLOW = [{"name": "SLUICE_PACE", "value": "base=0.2"}, {"name": "SLUICE_THREADS", "value": "1"}]  # misses the ITL target
NO_IMAGE = "registry.invalid/sluice/engine:none"
NEW_ARGUMENT = "--max-batched-tokens=384"
FAULT = "/fault"  # folder of inpod/sitecustomize.py, with which an engine answers every request with 500
FAULT_FILE = {"key": "sitecustomize.py", "path": "sitecustomize.py"}
ERRING: Object = {
    "env": [*manifests.engine()["template"]["env"], {"name": "PYTHONPATH", "value": FAULT}],
    "volumes": [{"name": "fault", "configMap": {"name": "programs", "items": [FAULT_FILE]}}],
    "volumeMounts": [{"name": "fault", "mountPath": FAULT}],
}
FAILED_SHARE = 0.05  # of the requests; a client's three attempts all go to the canary with 0.25³ = 1.6 %


@pytest.fixture(scope="module")
def load(cluster: Cluster, operator: Operator, settings: Settings) -> Iterator[jobs.Load]:
    """Clients of two replicas whose changes go by a canary. At the end changes apply at once again."""
    image, scaling = images.make_client(settings), {"mode": "Auto", "minReplicas": 2, "maxReplicas": 2}
    cluster.patch("llmd", "chat", {"spec": {"slo": SLO, "scaling": scaling, "rollout": {"canary": CANARY}}})
    wait_for("2 pods serve", lambda: len(stable(cluster)) == len(cluster.pods("chat")) == 2, timeout=300)
    yield jobs.start_official(cluster, "tried", image, "chat", operator.gateway_url, CLIENTS, AT_MOST)
    engine = {"template": manifests.engine()["template"], "image": None}  # a spec that was rolled back would apply now
    cluster.patch("llmd", "chat", {"spec": {"engine": engine, "rollout": {"canary": None}}})


def test_a_changed_spec_gets_its_share_of_the_requests_and_is_promoted_by_its_slo(
    cluster: Cluster, load: jobs.Load
) -> None:
    old = uids(stable(cluster))
    cluster.patch("llmd", "chat", {"spec": {"engine": {"scheduling": {"maxBatchedTokens": 384}}}})
    wait_for("the canary has its weight", lambda: canary(cluster).get("weightPercent") == 25, timeout=300, every=0.3)
    tried, others = requests_of_the_step(cluster)
    say(f"requests in the canary's step: {tried:.0f} of {tried + others:.0f}; {canary(cluster)}")
    assert tried + others >= LEAST_REQUESTS
    assert LEAST <= tried / (tried + others) <= MOST
    wait_for("the new spec is promoted", lambda: canary(cluster).get("phase") == "Promoted", timeout=300)
    say(canary(cluster)["message"])
    assert canary(cluster)["reason"] == "CanaryPromoted"
    wait_for("only new pods serve", lambda: len(stable(cluster)) == len(cluster.pods("chat")) == 2, timeout=120)
    assert old.isdisjoint(uids(stable(cluster)))
    assert all(NEW_ARGUMENT in pod["spec"]["containers"][0]["args"] for pod in stable(cluster))
    wait_for("Ready is True", lambda: cluster.condition("chat", "Ready")["status"] == "True", timeout=30)
    tried_by = f"chat{contract.CANARY_SUFFIX}"
    wait_for("nothing of the canary is left", lambda: cluster.deployment(tried_by) is None, timeout=60)


def test_a_spec_that_misses_the_slo_is_rolled_back_with_the_reason_in_the_status(
    cluster: Cluster, load: jobs.Load
) -> None:
    before = uids(stable(cluster))
    cluster.patch("llmd", "chat", {"spec": {"engine": {"template": {"env": SLOW}}}})
    assert_rolled_back(cluster, "SLOMissed", before)
    assert "of the canary's requests met the SLO targets" in canary(cluster)["message"]
    assert "minAttainmentPercent is 60" in canary(cluster)["message"]


def test_a_spec_whose_image_is_missing_is_rolled_back_with_the_reason_in_the_status(
    cluster: Cluster, load: jobs.Load
) -> None:
    before, template = uids(stable(cluster)), manifests.engine()["template"]
    try:
        cluster.patch("llmd", "chat", {"spec": {"engine": {"template": template, "image": NO_IMAGE}}})
        assert_rolled_back(cluster, "ImagePullFailed", before)
        assert NO_IMAGE in canary(cluster)["message"]
    finally:
        cluster.patch("llmd", "chat", {"spec": {"engine": {"template": template, "image": None}}})
    wait_for("Ready is True", lambda: cluster.condition("chat", "Ready")["status"] == "True", timeout=30)
    assert uids(stable(cluster)) == before


def test_no_request_failed_while_specs_were_tried(load: jobs.Load) -> None:
    assert load.is_running()
    account = load.finish()
    assert account["failed"] == []
    assert account["requests"] >= 20 * CLIENTS


def test_a_spec_whose_pods_answer_errors_is_rolled_back_with_the_reason_in_the_status(
    cluster: Cluster, operator: Operator, settings: Settings, load: jobs.Load
) -> None:
    image, before = images.make_client(settings), uids(stable(cluster))
    erring = jobs.start_official(cluster, "erring", image, "chat", operator.gateway_url, CLIENTS, AT_MOST)
    try:
        cluster.patch("llmd", "chat", {"spec": {"engine": {"template": ERRING}}})
        assert_rolled_back(cluster, "ErrorRate", before)
        assert "requests of the canary ended with an error" in canary(cluster)["message"]
        assert "maxErrorPercent is 1." in canary(cluster)["message"]
    finally:
        good = manifests.engine()["template"] | {"volumes": None, "volumeMounts": None}
        cluster.patch("llmd", "chat", {"spec": {"engine": {"template": good}}})
    account = erring.finish()
    for failure in account["failed"]:
        say(failure)
    assert [failure for failure in account["failed"] if "Error code: 500" not in failure] == []
    assert len(account["failed"]) <= FAILED_SHARE * account["requests"]
    wait_for("Ready is True", lambda: cluster.condition("chat", "Ready")["status"] == "True", timeout=30)


def canary(cluster: Cluster) -> Object:
    """status.canary."""
    found: Object = (cluster.resource("chat") or {}).get("status", {}).get("canary") or {}
    return found


def is_canary(pod: Object) -> bool:
    """True for a pod of the spec on trial."""
    return pod["metadata"]["labels"].get(contract.LABEL_REVISION) == contract.REVISION_CANARY


def stable(cluster: Cluster) -> list[Object]:
    """The ready pods that are not the canary's."""
    return [pod for pod in cluster.pods("chat") if is_ready(pod) and not is_canary(pod)]


def uids(pods: list[Object]) -> set[str]:
    """metadata.uid of each."""
    return {str(pod["metadata"]["uid"]) for pod in pods}


def requests_of_the_step(cluster: Cluster) -> tuple[float, float]:
    """Requests that arrived at the canary's pods and at the others until the step ends, both from the first look on."""
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    tried: set[str] = set()

    def ended() -> bool:
        for pod in cluster.pods("chat"):
            arrived = cluster.metrics(name_of(pod)).get(contract.REQUESTS_ARRIVED)
            if arrived is not None:
                first.setdefault(name_of(pod), arrived)
                last[name_of(pod)] = arrived
                tried.update({name_of(pod)} if is_canary(pod) else ())
        return canary(cluster).get("phase") != "Progressing"

    wait_for("the step ends", ended, timeout=180)
    arrived = Counter({name: last[name] - first[name] for name in first})
    of_canary = sum(arrived[name] for name in tried)
    return of_canary, arrived.total() - of_canary


def assert_rolled_back(cluster: Cluster, reason: str, before: set[str]) -> None:
    """The canary of the newest spec is rolled back for `reason`, and the pods with the uids `before` serve on."""
    began = time.monotonic()
    generation = (cluster.resource("chat") or {})["metadata"]["generation"]

    def is_rolled_back() -> bool:
        condition = cluster.condition("chat", "Ready")
        judged = condition.get("observedGeneration") == generation
        return judged and condition["reason"] == "CanaryRolledBack" and canary(cluster).get("reason") == reason

    wait_for(f"the canary is rolled back: {reason}", is_rolled_back, timeout=240)
    say(f"{canary(cluster)['message']} ({time.monotonic() - began:.0f} s)")
    assert canary(cluster)["phase"] == "RolledBack"
    assert cluster.condition("chat", "Available")["status"] == "True"
    wait_for("2 pods of the old spec serve", lambda: len(stable(cluster)) == 2, timeout=120)
    wait_for("no pod of the canary is left", lambda: not any(map(is_canary, cluster.pods("chat"))), timeout=120)
    assert uids(stable(cluster)) & before
