"""The state of a canary rollout, and what a pass observes of it."""

from dataclasses import dataclass, field
from typing import Literal

Phase = Literal["", "Progressing", "Promoting", "Promoted", "RolledBack"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests of engines, by their end."""

    finished: float = 0.0
    failed: float = 0.0  # by an error of the engine
    met: float = 0.0  # both SLO targets
    missed: float = 0.0

    def plus(self, other: "Counts") -> "Counts":
        """Return the sum."""
        return Counts(
            self.finished + other.finished,
            self.failed + other.failed,
            self.met + other.met,
            self.missed + other.missed,
        )

    def since(self, before: "Counts") -> "Counts":
        """Return the difference of two totals of one engine. An engine that restarted counts from 0 again."""
        pairs = (
            (self.finished, before.finished),
            (self.failed, before.failed),
            (self.met, before.met),
            (self.missed, before.missed),
        )
        if any(now < then for now, then in pairs):
            return self
        return Counts(*(now - then for now, then in pairs))

    @property
    def requests(self) -> float:
        """Requests that ended with an answer or with an error."""
        return self.finished + self.failed

    @property
    def error_percent(self) -> float:
        """Share of the requests that ended with an error, in percent; 0 without requests."""
        return 100.0 * self.failed / self.requests if self.requests else 0.0

    @property
    def attainment_percent(self) -> float:
        """Share of the requests that met the SLO, in percent; a failed one did not. 100 without requests."""
        judged = self.met + self.missed + self.failed
        return 100.0 * self.met / judged if judged else 100.0


@dataclass(frozen=True, slots=True)
class CanaryPod:
    """A pod of the canary. `totals` are those of its engine, None before its first scrape."""

    name: str
    ready: bool
    totals: Counts | None = None
    problem: tuple[str, str] | None = None  # reason and message
    loads: bool = False  # its model is being downloaded or loaded


@dataclass(frozen=True, slots=True)
class Trial:
    """What a pass observes. Revisions are fingerprints of pod templates."""

    wanted: str  # of the spec
    applied: str  # of the stable Deployment; "" before there is one
    replicas: int  # of both revisions
    stable_ready: int = 0  # ready pods that are not the canary's
    pods: tuple[CanaryPod, ...] = ()  # the canary's of the wanted revision that are not being deleted
    is_late: bool = False  # the canary's Deployment made no progress within its deadline
    is_rolled_out: bool = False  # all stable pods are of the wanted revision and ready
    lacks_nodes: bool = False  # a stable pod finds no node

    @property
    def ready(self) -> int:
        """Ready pods of the canary."""
        return sum(pod.ready for pod in self.pods)


@dataclass(frozen=True, slots=True)
class CanaryState:
    """The newest canary rollout. It is stored before each action, so that a restarted operator goes on from it."""

    phase: Phase = ""
    revision: str = ""  # on trial, promoted or rolled back
    step: int = 0  # from 1
    since: float | None = None  # seconds since 1970 when the step began; None while its pods start
    fails_since: float | None = None  # seconds since 1970 from which on a pod of it has had a problem
    counts: Counts = field(default_factory=Counts)  # of the canary's pods in this step
    seen: tuple[tuple[str, Counts], ...] = ()  # (pod, totals) that `counts` includes
    reason: str = ""  # CamelCase
    message: str = ""
    exists: bool = False  # the canary's Deployment or Service may exist

    @property
    def holds_stable(self) -> bool:
        """True while the stable Deployment keeps its pod template."""
        return self.phase in ("Progressing", "RolledBack")

    @property
    def has_pods(self) -> bool:
        """True while there are pods of the canary."""
        return self.phase in ("Progressing", "Promoting")
