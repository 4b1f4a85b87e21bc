"""The cluster of the current kubeconfig: kubectl and helm as a user runs them, and plain GETs for what is polled.

Polling goes through one `kubectl proxy`: a process per question would eat the processor that the engines need.
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
PATIENCE = 60.0  # seconds for which an API server that does not answer is asked again
PAUSE = 0.5  # seconds between two tries

# What kubectl says where the API server was out of reach for a moment, or another writer came between its read and its
# write. It may say so of a write that was done all the same: `DONE` is what the second try is then told.
PASSING = re.compile(
    r"connection refused|was refused - did you|connection reset|unexpected EOF|: EOF\b|i/o timeout|TLS handshake timeout|connection lost"
    r"|etcdserver: |error dialing backend|TooManyRequests|currently unable to handle|the object has been modified"
)
DONE = {"create": "(AlreadyExists)", "delete": "(NotFound)"}


class CommandFailed(Exception):
    """A command ended with another code than 0; the message carries what it said."""


class TimedOut(Exception):
    """What was waited for did not come; the message says what was seen last."""


def run(*command: str, stdin: str | None = None, timeout: float = 120) -> str:
    """Run a command; returns its standard output. Raises CommandFailed, TimedOut. A kubectl that met a passing trouble
    is run again for a while, except for `exec`, whose program may have run."""
    again = command[0] == "kubectl" and "exec" not in command
    done_before = next((told for verb, told in DONE.items() if verb in command), None)
    end: float | None = None  # of the patience, which begins with the first trouble
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
    """One line of the story, with the time of day."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def wait_for(what: str, probe: Callable[[], T | None], timeout: float, every: float = 1.0) -> T:
    """Ask until the answer is neither None nor False. Raises TimedOut; says how long it took."""
    started = time.monotonic()
    while True:
        if answer := probe():
            say(f"{what}: after {time.monotonic() - started:.0f} s")
            return answer
        if time.monotonic() - started > timeout:
            raise TimedOut(f"{what}: not within {timeout:.0f} s")
        time.sleep(every)


class Cluster:
    """All calls go to one namespace unless they name another."""

    def __init__(self, namespace: str, api: str) -> None:
        self.namespace = namespace
        self.api = api  # where `kubectl proxy` answers

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 120) -> str:
        """kubectl in the namespace."""
        return run("kubectl", "-n", self.namespace, *args, stdin=stdin, timeout=timeout)

    def apply(self, *manifests: Object) -> str:
        """kubectl apply -f -, as a user does it. Raises CommandFailed with the API server's words."""
        return self.kubectl(
            "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        )

    def get(self, path: str) -> Object | None:
        """GET an API path; None where there is nothing (404). An answer that does not come, or not whole, says nothing
        about that, and is asked for again. Raises TimedOut."""
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
        """GET an API path as text; None for 404 and for what does not answer whole now (a pod that just left)."""
        try:
            return self._read(path)
        except (OSError, http.client.HTTPException):  # the second: an answer that broke off in the middle is no OSError
            return None

    def _read(self, path: str) -> str:
        try:
            with urllib.request.urlopen(self.api + path, timeout=10) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            refused.close()  # it is the answer too, and holds its socket
            raise

    def patch(self, kind: str, name: str, change: Object) -> str:
        """kubectl patch --type=merge."""
        return self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(change))

    def resource(self, name: str) -> Object | None:
        """An LLMDeployment."""
        return self.get(f"{CUSTOM}/namespaces/{self.namespace}/{contract.PLURAL}/{name}")

    def deployment(self, name: str) -> Object | None:
        """A Deployment."""
        return self.get(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name}")

    def pods(self, instance: str) -> list[Object]:
        """The engine pods of an LLMDeployment, leaving ones included, oldest first."""
        found = self.get(
            f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={contract.LABEL_INSTANCE}%3D{instance}"
        )
        pods: list[Object] = found["items"] if found else []
        return sorted(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def metrics(self, pod: str) -> dict[str, float]:
        """An engine pod's metrics by `name{labels}`; empty while it does not answer."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}:{contract.ADMIN_PORT}/proxy{contract.PATH_METRICS}"
        return parse_metrics(self.text(path) or "")

    def condition(self, name: str, kind: str) -> Object:
        """One condition of an LLMDeployment; empty while there is none."""
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
    """Serving, and not about to leave."""
    conditions = pod.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def name_of(thing: Object) -> str:
    """metadata.name."""
    return str(thing["metadata"]["name"])


@contextmanager
def connect(namespace: str) -> Iterator[Cluster]:
    """A Cluster, as long as its `kubectl proxy` lives."""
    with subprocess.Popen(["kubectl", "proxy", "--port=0"], stdout=subprocess.PIPE, text=True) as proxy:
        try:
            line = proxy.stdout.readline() if proxy.stdout else ""  # Starting to serve on 127.0.0.1:40123
            if ":" not in line:
                raise CommandFailed("kubectl proxy did not start: is there a kubeconfig, and does its cluster answer?")
            yield Cluster(namespace, f"http://{line.split()[-1]}")
        finally:
            proxy.terminate()


class Recorder(threading.Thread):
    """Looks once a second and keeps every change: the witness for what must have happened in between.

    `seen` has (seconds since start, what, value) for the Deployment's replicas, the limit and work of each pod.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, str, float]] = []
        self._last: dict[str, float] = {}
        self._cluster, self._name = cluster, name
        self._end = threading.Event()
        self._began = time.monotonic()
        self._broke: Exception | None = None

    def run(self) -> None:
        """Until `stop`."""
        try:
            while not self._end.wait(1.0):
                with suppress(TimedOut):  # an API server that is out of reach has been seen doing nothing
                    self._look()
        except Exception as broke:  # noqa: BLE001 - raised again in `values`: a witness that fell asleep must not look like a fleet that stands still
            self._broke = broke

    def _look(self) -> None:
        deployment = self._cluster.deployment(self._name)
        if deployment:
            self._note("replicas", float(deployment["spec"].get("replicas", 1)))
        for pod in self._cluster.pods(self._name):
            samples = self._cluster.metrics(name_of(pod))
            leaving = "leaving" if "deletionTimestamp" in pod["metadata"] else "serving"
            limit = samples.get(f'{contract.ADMISSION_LIMIT}{{kind="concurrency"}}')
            if limit is not None:
                self._note(f"limit {name_of(pod)}", limit)
            running = samples.get(contract.REQUESTS_RUNNING)
            if running is not None:
                self._note(f"{leaving} {name_of(pod)}", running)

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        self.join()

    def values(self, prefix: str) -> dict[str, list[float]]:
        """What was seen under names that begin so, in order of time. Raises what ended the watch, if anything did."""
        if self._broke is not None:
            raise RuntimeError(f"the recorder of {self._name} broke") from self._broke
        found: dict[str, list[float]] = {}
        for _, what, value in list(self.seen):
            if what.startswith(prefix):
                found.setdefault(what, []).append(value)
        return found

    def _note(self, what: str, value: float) -> None:
        if self._last.get(what) != value:
            self._last[what] = value
            self.seen.append((round(time.monotonic() - self._began, 1), what, value))
