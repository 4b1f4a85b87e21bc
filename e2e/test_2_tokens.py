"""Part 2, continued: metrics.auth token. The release still wakes and measures models, and a reader without a token gets 401."""

import base64
import json
from collections.abc import Iterator

import pytest

from e2e.framework import images, jobs, manifests
from e2e.framework.cluster import Cluster, Object, is_ready, name_of, run, say, wait_for
from e2e.framework.operator_pod import Operator
from e2e.framework.settings import Settings
from sluice import contract

NAME = "guarded"
SLO: Object = {"ttftMilliseconds": 2000, "itlMilliseconds": 60}
CLIENTS = 4
SECONDS = 90  # at most; it ends when the operator has measured the engine
SCALING: Object = {"mode": "Auto", "minReplicas": 0, "maxReplicas": 1}
READ = """
import sys, urllib.error, urllib.request
method, url, token = sys.argv[1:]
headers = {"Authorization": f"Bearer {token}"} if token else {}
request = urllib.request.Request(url, headers=headers, method=method, data=b"{}" if method == "PATCH" else None)
try:
    print(urllib.request.urlopen(request, timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.fixture(scope="module")
def guarded(cluster: Cluster, operator: Operator, settings: Settings) -> Iterator[jobs.Load]:
    """The release asks for tokens, and clients of a model without a replica have begun."""
    client = images.make_client(settings)
    operator.upgrade(values=("metrics.auth=token",))
    try:
        cluster.apply(manifests.llm_deployment(NAME, slo=SLO, scaling=SCALING | {"mode": "External"}, replicas=0))
        wait_for("a Deployment without a pod", lambda: replicas(cluster) == 0, timeout=90, every=0.5)
        cluster.patch("llmd", NAME, {"spec": {"scaling": {"mode": "Auto"}}})
        yield jobs.start_official(cluster, NAME, client, NAME, operator.gateway_url, CLIENTS, SECONDS)
    finally:
        cluster.kubectl("delete", "llmd", NAME, "--ignore-not-found", "--timeout=200s", timeout=220)
        operator.upgrade()


def test_with_tokens_the_operator_reads_gateways_and_wakes_a_model(cluster: Cluster, guarded: jobs.Load) -> None:
    wait_for("a replica asked for", lambda: replicas(cluster) >= 1, timeout=30, every=0.2)
    wait_for("1 pod serves", lambda: serving(cluster), timeout=120)


def test_with_tokens_the_operator_reads_engines(cluster: Cluster, guarded: jobs.Load) -> None:
    assert guarded.is_running()
    measured = wait_for("the status has the measured latency", lambda: status(cluster).get("slo"), timeout=60)
    say(str(measured))
    assert cluster.condition(NAME, "MetricsAvailable")["status"] == "True"
    account = guarded.finish()
    assert account["failed"] == []
    assert account["requests"] >= 2 * CLIENTS


def test_a_read_of_an_engine_needs_the_token_of_its_pod_monitor(cluster: Cluster, guarded: jobs.Load) -> None:
    pod = serving(cluster)[0]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    token = token_of(cluster.namespace, volumes[contract.READ_VOLUME]["secret"]["secretName"])
    for path in (contract.PATH_METRICS, contract.PATH_LOAD):
        answers = [asked(pod, "GET", contract.ADMIN_PORT, path, sent) for sent in ("", "wrong", token)]
        assert answers == [401, 401, 200], path
    assert asked(pod, "PATCH", contract.ADMIN_PORT, contract.PATH_LIMITS, token) in (401, 403)


def test_a_read_of_operator_and_gateway_needs_the_token_of_their_monitors(
    operator: Operator, guarded: jobs.Load
) -> None:
    token = token_of(operator.namespace, f"{operator.release}-read")
    for pod, port in ((operator.gateways()[0], contract.GATEWAY_ADMIN_PORT), (operator.pods()[0], 8080)):
        answers = [asked(pod, "GET", port, contract.PATH_METRICS, sent) for sent in ("", "wrong", token)]
        assert answers == [401, 401, 200], name_of(pod)


def replicas(cluster: Cluster) -> int:
    """The Deployment's replicas; -1 without one."""
    return int((cluster.deployment(NAME) or {"spec": {"replicas": -1}})["spec"]["replicas"])


def status(cluster: Cluster) -> Object:
    """The resource's status."""
    return dict((cluster.resource(NAME) or {}).get("status") or {})


def serving(cluster: Cluster) -> list[Object]:
    """The pods that are ready and not being deleted."""
    return [pod for pod in cluster.pods(NAME) if is_ready(pod)]


def token_of(namespace: str, secret: str) -> str:
    """The token that Prometheus is given, from the Secret to which the monitor refers."""
    found: Object = json.loads(run("kubectl", "-n", namespace, "get", "secret", secret, "-o", "json"))
    return base64.b64decode(found["data"][contract.READ_TOKEN_KEY]).decode()


def asked(pod: Object, method: str, port: int, path: str, token: str) -> int:
    """The HTTP status of a request from within the pod: the API server's proxy drops the header."""
    where = ("kubectl", "-n", pod["metadata"]["namespace"], "exec", name_of(pod), "--", manifests.PYTHON, "-c", READ)
    return int(run(*where, method, f"http://{pod['status']['podIP']}:{port}{path}", token))
