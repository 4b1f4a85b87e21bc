"""Access to the cluster of the current kubeconfig: kubectl and helm as a user runs them, and plain GETs for polling.

Polling uses one `kubectl proxy`, because one process per request would take the CPU time that the engines need.
"""

import http.client
import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from sluice import contract

Object = dict[str, Any]
T = TypeVar("T")

CUSTOM = f"/apis/{contract.API_VERSION}"
RESTRICTED = "pod-security.kubernetes.io/enforce"
PATIENCE = 60.0  # seconds for which requests to an unresponsive API server are retried
PAUSE = 0.5  # seconds between two attempts

# Errors of kubectl when the API server is briefly unreachable or another writer changed the object in between. The
# write may have succeeded all the same: then the second attempt gets the error in `DONE`.
PASSING = re.compile(
    r"connection refused|was refused - did you|connection reset|unexpected EOF|: EOF\b|i/o timeout|TLS handshake timeout|connection lost"
    r"|etcdserver: |error dialing backend|TooManyRequests|currently unable to handle|the object has been modified"
)
DONE = {"create": "(AlreadyExists)", "delete": "(NotFound)"}


class CommandFailed(Exception):
    """A command ended with a non-zero exit code; the message has its output."""


class TimedOut(Exception):
    """A wait timed out; the message has the last state."""


def run(*command: str, stdin: str | None = None, timeout: float = 120) -> str:
    """Run a command and return its standard output. Raises CommandFailed and TimedOut.

    A kubectl command with a transient error is retried for PATIENCE, except `exec`, whose program may have run.
    """
    again = command[0] == "kubectl" and "exec" not in command
    done_before = next((told for verb, told in DONE.items() if verb in command), None)
    end: float | None = None  # deadline of the retries, set at the first error
    while True:
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired as late:
            raise TimedOut(f"{' '.join(command)}: no end within {timeout:.0f} s") from late
        if not done.returncode or (end is not None and done_before is not None and done_before in done.stderr):
            return done.stdout
        end = time.monotonic() + PATIENCE if end is None else end
        if not (again and PASSING.search(done.stderr)) or time.monotonic() > end:
            raise CommandFailed(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        time.sleep(PAUSE)


def say(text: str) -> None:
    """Print one line of the log with the time of day."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def wait_for(what: str, probe: Callable[[], T | None], timeout: float, every: float = 1.0) -> T:
    """Poll until `probe` returns a true value, and print how long it took. Raises TimedOut."""
    started = time.monotonic()
    while True:
        if answer := probe():
            say(f"{what}: after {time.monotonic() - started:.0f} s")
            return answer
        if time.monotonic() - started > timeout:
            raise TimedOut(f"{what}: not within {timeout:.0f} s")
        time.sleep(every)


class Cluster:
    """Calls to one namespace, unless they name another."""

    def __init__(self, namespace: str, api: str) -> None:
        self.namespace = namespace
        self.api = api  # base URL of `kubectl proxy`

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Run kubectl in the namespace."""
        return run("kubectl", "-n", self.namespace, *args, stdin=stdin, timeout=timeout)

    def apply(self, *manifests: Object) -> str:
        """Run kubectl apply -f -, as a user does. Raises CommandFailed with the API server's message."""
        return self.kubectl(
            "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        )

    def get(self, path: str) -> Object | None:
        """GET an API path; None for 404. A missing or truncated response is retried.

        Raises TimedOut.
        """
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return json.loads(self._read(path))
            except urllib.error.HTTPError as refused:
                if refused.code == http.HTTPStatus.NOT_FOUND:
                    return None
                trouble: Exception = refused
            except (OSError, http.client.HTTPException, json.JSONDecodeError) as broken:
                trouble = broken
            if time.monotonic() > end:
                raise TimedOut(f"GET {path}: no answer within {PATIENCE:.0f} s: {trouble!r}") from trouble
            time.sleep(PAUSE)

    def text(self, path: str) -> str | None:
        """GET an API path as text; None for any error, for example a pod that no longer exists."""
        try:
            return self._read(path)
        except (OSError, http.client.HTTPException):  # a truncated response raises HTTPException, which is no OSError
            return None

    def _read(self, path: str) -> str:
        try:
            with urllib.request.urlopen(self.api + path, timeout=10) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            refused.close()  # the error is also the response and holds its socket
            raise

    def patch(self, kind: str, name: str, change: Object) -> str:
        """Run kubectl patch --type=merge."""
        return self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(change))

    def resource(self, name: str) -> Object | None:
        """Get an LLMDeployment."""
        return self.get(f"{CUSTOM}/namespaces/{self.namespace}/{contract.PLURAL}/{name}")

    def deployment(self, name: str) -> Object | None:
        """Get a Deployment."""
        return self.get(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name}")

    def pods(self, instance: str) -> list[Object]:
        """The engine pods of an LLMDeployment, including terminating ones, oldest first."""
        found = self.get(
            f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={contract.LABEL_INSTANCE}%3D{instance}"
        )
        pods: list[Object] = found["items"] if found else []
        return sorted(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def metrics(self, pod: str) -> dict[str, float]:
        """An engine pod's metrics by `name{labels}`; empty if it does not answer."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}:{contract.ADMIN_PORT}/proxy{contract.PATH_METRICS}"
        return parse_metrics(self.text(path) or "")

    def limits(self, pod: str) -> Object:
        """An engine pod's response to GET /limits; empty if it does not answer."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}:{contract.ADMIN_PORT}/proxy{contract.PATH_LIMITS}"
        limits: Object = json.loads(self.text(path) or "{}")
        return limits

    def endpoints(self, service: str) -> set[str]:
        """Addresses to which a Service currently routes new connections."""
        label = f"labelSelector=kubernetes.io/service-name%3D{service}"
        found = self.get(f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices?{label}") or {}
        endpoints = [endpoint for piece in found.get("items", []) for endpoint in piece.get("endpoints") or []]
        return {address for each in endpoints if each["conditions"].get("ready") for address in each["addresses"]}

    def condition(self, name: str, kind: str) -> Object:
        """One condition of an LLMDeployment; empty if it is absent."""
        status = (self.resource(name) or {}).get("status", {})
        return next((c for c in status.get("conditions", []) if c["type"] == kind), {})


def parse_metrics(text: str) -> dict[str, float]:
    """Prometheus text → `name{labels}` → value."""
    samples = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    return samples


def is_ready(pod: Object) -> bool:
    """True if the pod is ready and not being deleted."""
    conditions = pod.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def name_of(thing: Object) -> str:
    """metadata.name."""
    return str(thing["metadata"]["name"])


@contextmanager
def connect(namespace: str) -> Iterator[Cluster]:
    """A Cluster with a running `kubectl proxy`."""
    with subprocess.Popen(
        ["kubectl", "proxy", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as proxy:
        try:
            line = proxy.stdout.readline() if proxy.stdout else ""  # Starting to serve on 127.0.0.1:40123
            if ":" not in line:
                raise CommandFailed("kubectl proxy did not start: is there a kubeconfig, and does its cluster answer?")
            yield Cluster(namespace, f"http://{line.split()[-1]}")
        finally:
            proxy.terminate()


class Recorder(threading.Thread):
    """Polls once a second and keeps every change, for assertions about the time between two checks.

    `seen` has (seconds since start, what, value) for the Deployment's replicas, the limit and running requests of each
    pod, the number of ready pods, and the conditions Ready and Available (1 True, 0 not). `gone` has the seconds from
    each pod's deletion to its end.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, str, float]] = []
        self.gone: dict[str, float] = {}  # from the last poll before its deletion to the first one without it
        self._leaving: dict[str, float] = {}
        self._looked = time.monotonic()
        self._last: dict[str, float] = {}
        self._cluster, self._name = cluster, name
        self._end = threading.Event()
        self._began = time.monotonic()
        self._broke: Exception | None = None

    def run(self) -> None:
        """Poll until `stop`."""
        try:
            while not self._end.wait(1.0):
                with suppress(TimedOut):  # an unreachable API server changes nothing
                    self._look()
        except Exception as broke:  # noqa: BLE001 - raised again in `values`
            self._broke = broke

    def _look(self) -> None:
        deployment = self._cluster.deployment(self._name)
        if deployment:
            self._note("replicas", float(deployment["spec"].get("replicas", 1)))
        status = (self._cluster.resource(self._name) or {}).get("status", {})
        for condition in status.get("conditions", []):
            if condition["type"] in ("Ready", "Available"):
                self._note(f"condition {condition['type']}", float(condition["status"] == "True"))
        pods = self._cluster.pods(self._name)
        self._note_departures(pods)
        self._note("ready", float(sum(is_ready(pod) for pod in pods)))
        for pod in pods:
            samples = self._cluster.metrics(name_of(pod))
            leaving = "leaving" if "deletionTimestamp" in pod["metadata"] else "serving"
            limit = samples.get(f'{contract.ADMISSION_LIMIT}{{kind="concurrency"}}')
            if limit is not None:
                self._note(f"limit {name_of(pod)}", limit)
            running = samples.get(contract.REQUESTS_RUNNING)
            if running is not None:
                self._note(f"{leaving} {name_of(pod)}", running)

    def _note_departures(self, pods: list[Object]) -> None:
        before, self._looked = self._looked, time.monotonic()
        for pod in pods:
            if "deletionTimestamp" in pod["metadata"]:
                self._leaving.setdefault(name_of(pod), before)
        for name in self._leaving.keys() - {name_of(pod) for pod in pods}:
            self.gone[name] = self._looked - self._leaving.pop(name)

    def now(self) -> float:
        """Seconds since start, as in `seen`."""
        return time.monotonic() - self._began

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        self.join()

    def values(self, prefix: str, since: float = 0.0) -> dict[str, list[float]]:
        """The values recorded under names with this prefix, in order of time.

        Raises RuntimeError if the recorder failed.
        """
        if self._broke is not None:
            raise RuntimeError(f"the recorder of {self._name} broke") from self._broke
        found: dict[str, list[float]] = {}
        for at, what, value in list(self.seen):
            if what.startswith(prefix) and at >= since:
                found.setdefault(what, []).append(value)
        return found

    def _note(self, what: str, value: float) -> None:
        if self._last.get(what) != value:
            self._last[what] = value
            self.seen.append((round(time.monotonic() - self._began, 1), what, value))
