"""The result of a simulation: the outcome of every request and the state of the fleet at each decision."""

from dataclasses import dataclass, field

from sluice_operator.autoscaler.values import Reason
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.cluster.scenario import Mode


@dataclass(frozen=True, slots=True)
class DecisionReason:
    """The reason of a decision, and its time in seconds."""

    at: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class FleetSample:
    """The state of the fleet at a decision. `at` in seconds; `running` and `waiting` are summed over the replicas."""

    at: float
    pods: int
    ready: int
    running: int
    waiting: int
    kv_share: float  # held blocks over all blocks of the ready replicas, 0..1


@dataclass(frozen=True, slots=True)
class PodLifetime:
    """One pod from bind to release, loading and draining included. Seconds."""

    name: str
    created_at: float
    left_at: float


@dataclass(slots=True)
class Run:
    """The outcomes of requests, the lifetimes of pods, and replicas and limits over time (s)."""

    records: list[RequestRecord]
    mode: Mode = "exact"
    replicas: list[tuple[float, int]] = field(default_factory=list)  # (time, pods that exist) at each decision
    desired: list[tuple[float, int]] = field(default_factory=list)  # (time, desired replicas) after each decision
    limits: list[tuple[float, int]] = field(default_factory=list)  # (time, median concurrency limit of the fleet)
    fleet_samples: list[FleetSample] = field(default_factory=list)
    decisions: list[DecisionReason] = field(default_factory=list)
    pod_lifetimes: list[PodLifetime] = field(default_factory=list)
    failures: int = 0  # pod failures
    seconds: float = 0.0

    @property
    def replica_seconds(self) -> float:
        """Seconds from bind to release, summed over all pods."""
        return sum(lifetime.left_at - lifetime.created_at for lifetime in self.pod_lifetimes)
