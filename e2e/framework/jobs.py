"""Jobs inside the cluster: start one, wait for its end, read its account."""

import json
from typing import Any

from e2e.framework import manifests
from e2e.framework.cluster import Cluster, CommandFailed, Object, TimedOut, name_of, say, wait_for

Account = dict[str, Any]
STOP = "/tmp/stop"  # a client that finds this file starts no further request


class JobFailed(Exception):
    """A Job's pod ended with a non-zero exit code; the message has its last lines."""


class Load:
    """A Job that sends requests. Its account is at the end of its log."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self.name = cluster, name

    def wait(self, timeout: float) -> Account:
        """The account, once the Job is done. Raises JobFailed."""
        wait_until_done(self._cluster, self.name, timeout)
        return self._account(60)

    def finish(self, timeout: float = 120) -> Account:
        """Stop its clients after the requests that they have begun, and return the account.

        The account is read before the Job is done, of which the kubelet tells late after an outage. Raises TimedOut.
        """
        wait_for(f"{self.name} starts no further request", self._is_stopped, timeout=60)
        return self._account(timeout)

    def _is_stopped(self) -> bool:
        if not self.is_running():
            return True
        try:
            self._cluster.kubectl("exec", f"job/{self.name}", "--", manifests.PYTHON, "-c", f"open({STOP!r}, 'w')")
        except CommandFailed as error:
            say(str(error))
            return False
        return True

    def _account(self, timeout: float) -> Account:
        account = account_of(self._cluster, self.name, timeout)
        failed = account["failed"]
        say(f"{self.name}: { {**account, 'failed': len(failed) if isinstance(failed, list) else failed} }")
        return account

    def is_running(self) -> bool:
        """True while its pod still sends requests."""
        status = _status(self._cluster, self.name)
        return not (status.get("succeeded") or status.get("failed"))


def start(cluster: Cluster, job: Object) -> Load:
    """Create the Job and wait until its pod runs."""
    name = name_of(job)
    cluster.kubectl("delete", "job", name, "--ignore-not-found")  # of an earlier run that this one continues
    cluster.apply(job)

    def begun() -> bool:
        status = _status(cluster, name)
        return bool(status.get("ready") or status.get("succeeded") or status.get("failed"))

    wait_for(f"job {name} runs", begun, timeout=300, every=0.5)
    return Load(cluster, name)


def start_client(cluster: Cluster, name: str, image: str, model: str, *options: str, url: str = "") -> Load:
    """Start the suite's own checking client (inpod/client.py) against `url`, by default the model's Service."""
    service = url or f"http://{model}.{cluster.namespace}.svc:8000"
    program = f"{manifests.PROGRAMS}/client.py"
    command = [manifests.PYTHON, program, manifests.REFERENCES, model, service, *options]
    return start(cluster, manifests.client_job(name, image, command))


def start_official(cluster: Cluster, name: str, image: str, model: str, url: str, *options: int | str) -> Load:
    """Start official clients (inpod/official.py) in their image. `options`: clients, seconds, requests, "opening"."""
    program = [manifests.PYTHON, f"{manifests.PROGRAMS}/official.py", manifests.REFERENCES, model]
    return start(cluster, manifests.client_job(name, image, [*program, url, *map(str, options)]))


def start_load(cluster: Cluster, name: str, image: str, model: str, *, requests: int, clients: int) -> Load:
    """Start the load that makes the fleet scale: `sluice bench`, with every text compared with its reference."""
    url = f"http://{model}.{cluster.namespace}.svc:8000"
    command = [manifests.SLUICE, "bench", url, "--model", model, "--prompts", manifests.PROMPTS, "--max-tokens", "64"]
    command += ["--requests", str(requests), "--concurrency", str(clients), "--no-keep-alive"]
    return start(cluster, manifests.client_job(name, image, command))


def wait_until_done(cluster: Cluster, name: str, timeout: float) -> None:
    """Wait until the Job has succeeded. Raises JobFailed with the end of its log, or TimedOut."""

    def ended() -> str | None:
        status = _status(cluster, name)
        return "failed" if status.get("failed") else "done" if status.get("succeeded") else None

    if wait_for(f"job {name} ends", ended, timeout) == "failed":
        raise JobFailed(f"job {name} failed:\n{log_of(cluster, name)[-3000:]}")


def account_of(cluster: Cluster, name: str, timeout: float = 60) -> Account:
    """The last line of a Job's log that is JSON, because a library may print after it.

    After an outage the kubelet may not serve the log at once. Raises TimedOut with the end of the log.
    """

    def account() -> str | None:
        return next((line for line in reversed(log_of(cluster, name).splitlines()) if line.startswith("{")), None)

    try:
        line: str = wait_for(f"job {name} has an account", account, timeout)
    except TimedOut as silent:
        raise TimedOut(f"{silent}\n{log_of(cluster, name)[-3000:]}") from silent
    found: Account = json.loads(line)
    return found


def log_of(cluster: Cluster, name: str) -> str:
    """The log of the Job's pod, or the error if there is none yet."""
    try:
        return cluster.kubectl("logs", f"job/{name}", "--tail=200")
    except CommandFailed as silent:
        return str(silent)


def _status(cluster: Cluster, name: str) -> Object:
    found = cluster.get(f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs/{name}") or {}
    status: Object = found.get("status", {})
    return status
