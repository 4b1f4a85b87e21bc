"""What is to be seen of the loop at one moment, taken from what the last pass observed: no scrape of its own."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sluice_operator.context import Context
from sluice_operator.decide.values import EngineSample
from sluice_operator.local import LocalWorld
from sluice_operator.pods import phase_of
from sluice_operator.render import names
from sluice_operator.world import Key, Object


@dataclass(frozen=True, slots=True)
class PodLine:
    """One replica."""

    name: str
    phase: str
    limit: int | None = None  # requests that may run at once, now
    queue: int | None = None  # requests that may wait, now
    running: int | None = None
    waiting: int | None = None
    kv_percent: float | None = None
    pid: int | None = None
    admin: str | None = None  # base URL of its admin port
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One model. Latencies are at the SLO's attainment percentile; limit and queue bound are the tightest replica's."""

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
        """As JSON-able data with stable keys."""
        return asdict(self)

    def notable(self) -> tuple[object, ...]:
        """What makes a new line worth writing at once."""
        phases = tuple((pod.name, pod.phase) for pod in self.pods)
        return self.replicas, self.ready, self.desired, self.limit, self.queue, self.why, phases


async def take(key: Key, world: LocalWorld, context: Context, url: str) -> Snapshot:
    """The snapshot after the newest pass."""
    resource = await world.get("LLMDeployment", key.namespace, key.name) or {}
    status: Mapping[str, Any] = resource.get("status") or {}
    memory = context.memories.get(key)
    samples = dict(memory.seen.samples) if memory is not None else {}
    found = await world.list("Pod", key.namespace, names.selector(key.name))
    lines = tuple(_line(pod, samples.get(pod["metadata"]["name"], (None, 0.0))[0], world) for pod in found)
    serving = [line for line in lines if line.phase == "ready"]
    decision = context.decisions.get(key)
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
        waiting=sum(line.waiting or 0 for line in lines),
        url=url,
        why=_why(status, lines),
        pods=lines,
    )


def _line(pod: Object, sample: EngineSample | None, world: LocalWorld) -> PodLine:
    phase, trouble = phase_of(pod)
    endpoint = world.endpoint(pod)
    base = PodLine(
        name=pod["metadata"]["name"],
        phase=phase,
        pid=world.pid(pod),
        admin=f"http://{endpoint.host}:{endpoint.port}" if endpoint else None,
        trouble=f"{trouble.reason}: {trouble.message}" if trouble else None,
    )
    if sample is None:
        return base
    return PodLine(
        name=base.name,
        phase=phase,
        limit=int(sample.concurrency),
        queue=int(sample.queue_limit),
        running=int(sample.running),
        waiting=int(sample.waiting),
        kv_percent=_scaled(sample.kv_occupancy, 100),
        pid=base.pid,
        admin=base.admin,
        trouble=base.trouble,
    )


def _why(status: Mapping[str, Any], lines: tuple[PodLine, ...]) -> str:
    """What stands in the way, else the newest decision on replicas, else the state in one word."""
    for line in lines:
        if line.trouble:
            return line.trouble
    for decision in reversed(status.get("decisions") or ()):
        if decision.get("kind") == "replicas" and decision.get("message"):
            return str(decision["message"])
    return str(status.get("reason") or "Starting")


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else round(value * scale, 1)
