"""A snapshot of the loop, taken from the observations of the last pass without a scrape of its own."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sluice.up.wording import local_words
from sluice_operator.autoscaler.values import EngineSample
from sluice_operator.cluster.client import Key, Object
from sluice_operator.cluster.local import LocalCluster
from sluice_operator.cluster.pod_status import phase_of
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.render import names
from sluice_operator.status.build import by_type


@dataclass(frozen=True, slots=True)
class PodLine:
    """One replica."""

    name: str
    phase: str
    limit: int | None = None  # concurrency limit now
    queue: int | None = None  # queue bound now
    running: int | None = None
    waiting: int | None = None
    kv_percent: float | None = None
    pid: int | None = None
    admin: str | None = None  # base URL of its admin port
    reason: str | None = None  # of its problem, in CamelCase
    trouble: str | None = None  # the problem as a sentence


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One model.

    Latencies are at the SLO's attainment percentile; limit and queue are the smallest of all ready replicas; `waiting`
    counts the gateway's queue too.
    """

    name: str
    replicas: int
    ready: int
    desired: int
    kv_percent: float | None
    ttft_ms: float | None
    itl_ms: float | None
    limit: int | None
    queue: int | None
    running: int
    waiting: int
    url: str
    why: str
    pods: tuple[PodLine, ...]

    def fields(self) -> dict[str, Any]:
        """The snapshot as JSON-serialisable data with stable keys."""
        return asdict(self)

    def notable(self) -> tuple[object, ...]:
        """The values whose change is worth a new line at once."""
        phases = tuple((pod.name, pod.phase) for pod in self.pods)
        return self.replicas, self.ready, self.desired, self.limit, self.queue, self.why, phases


async def take(key: Key, cluster: LocalCluster, reconciler: Reconciler, url: str, queued: int) -> Snapshot:
    """The snapshot after the latest pass. `queued`: requests that wait in the gateway."""
    resource = await cluster.get("LLMDeployment", key.namespace, key.name) or {}
    status: Mapping[str, Any] = resource.get("status") or {}
    state = reconciler.states.get(key)
    samples = dict(state.observation.samples) if state is not None else {}
    found = await cluster.list("Pod", key.namespace, names.selector(key.name))
    lines = tuple(_line(pod, samples.get(pod["metadata"]["name"], (None, 0.0))[0], cluster) for pod in found)
    serving = [line for line in lines if line.phase == "ready"]
    decision = reconciler.decisions.get(key)
    return Snapshot(
        name=key.name,
        replicas=sum(line.phase != "draining" for line in lines),
        ready=len(serving),
        desired=decision.desired if decision is not None else len(lines),
        kv_percent=_scaled(decision.kv_occupancy if decision else None, 100),
        ttft_ms=_scaled(decision.ttft if decision else None, 1000),
        itl_ms=_scaled(decision.itl if decision else None, 1000),
        limit=min((line.limit for line in serving if line.limit is not None), default=None),
        queue=min((line.queue for line in serving if line.queue is not None), default=None),
        running=sum(line.running or 0 for line in lines),
        waiting=queued + sum(line.waiting or 0 for line in lines),
        url=url,
        why=why(status, lines),
        pods=lines,
    )


def _line(pod: Object, sample: EngineSample | None, cluster: LocalCluster) -> PodLine:
    phase, problem = phase_of(pod)
    endpoint = cluster.endpoint(pod)
    base = PodLine(
        name=pod["metadata"]["name"],
        phase=phase,
        pid=cluster.pid(pod),
        admin=f"http://{endpoint.host}:{endpoint.port}" if endpoint else None,
        reason=problem.reason if problem else None,
        trouble=local_words(f"{problem.reason}: {problem.message}") if problem else None,
    )
    if sample is None or base.pid is None:
        return base
    return replace(
        base,
        limit=int(sample.concurrency),
        queue=int(sample.queue_limit),
        running=int(sample.running),
        waiting=int(sample.waiting),
        kv_percent=_scaled(sample.kv_occupancy, 100),
    )


def why(status: Mapping[str, Any], lines: tuple[PodLine, ...]) -> str:
    """The first pod's problem, else why none serves yet (such as the progress of a download), else the latest decision
    on replicas, else the reason of the Ready condition.
    """
    for line in lines:
        if line.trouble:
            return line.trouble
    ready = by_type(status).get("Ready", {})
    if ready.get("status") == "False" and ready.get("reason") != "Starting":
        return local_words(str(ready.get("message", "")))
    for decision in reversed(status.get("decisions") or ()):
        if decision.get("kind") == "replicas" and decision.get("message"):
            return local_words(str(decision["message"]))
    return str(ready.get("reason", "Starting"))


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else round(value * scale, 1)
