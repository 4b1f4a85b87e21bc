"""What came of a simulation: every request's life and what the fleet was at each decision."""

from dataclasses import dataclass, field

from sluice_operator.decide.values import Reason
from sluice_sim.record import Record
from sluice_sim.settings import Mode


@dataclass(frozen=True, slots=True)
class Said:
    """A decision's sentence and when it was made."""

    at: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class Moment:
    """The fleet when a decision was about to be made."""

    at: float
    pods: int
    ready: int
    running: int
    waiting: int
    kv_share: float  # of the blocks of ready replicas, held


@dataclass(frozen=True, slots=True)
class Life:
    """One pod from bind to release, loading and draining included. Seconds."""

    name: str
    created_at: float
    left_at: float


@dataclass(slots=True)
class Run:
    """Lives of requests and pods, and the dials over time."""

    records: list[Record]
    mode: Mode = "exact"
    replicas: list[tuple[float, int]] = field(default_factory=list)  # (time, pods that exist) at each decision
    wanted: list[tuple[float, int]] = field(default_factory=list)  # (time, pods asked for) after each decision
    limits: list[tuple[float, int]] = field(default_factory=list)  # (time, the fleet's median limit in force)
    moments: list[Moment] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    failures: int = 0  # pods that died
    seconds: float = 0.0

    @property
    def replica_seconds(self) -> float:
        """From bind to release, over all pods."""
        return sum(life.left_at - life.created_at for life in self.lives)
