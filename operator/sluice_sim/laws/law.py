"""What a law is: decide()'s signature with a memory of its own, and one knob to tune.

Peers are given exactly what decide() is given. They move replicas only; what their engines admit is the engine's
fixed maximum, as in the systems that they come from. Queueing by deadline and giving up who cannot be in time belong
to admission too (control.md, "Admission"), so only laws that admit have that door: with it llm-d's own law would be
better on T4 than llm-d measured, and the profile was calibrated on what they measured (operator/LOG.md has the figures
with the door for everybody).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.values import Decision, Observed, PodView, Reason

GRID: Final = 9  # values of each law's knob: every law is tuned with the same effort


@dataclass(frozen=True, slots=True)
class Knob:
    """The one number that a law's own documentation tells its user to tune. `most`: what a search beyond the grid keeps
    to."""

    name: str
    default: float
    grid: tuple[float, ...]
    unit: str = ""
    most: float = math.inf


class Law(Protocol):
    """A law with its knob turned to a value. It holds no state: that travels as its memory, opaque to the caller."""

    @property
    def name(self) -> str:
        """How it is asked for."""
        ...

    @property
    def knob(self) -> Knob:
        """What can be tuned."""
        ...

    @property
    def setting(self) -> float:
        """Where the knob stands."""
        ...

    @property
    def admits(self) -> bool:
        """Whether limits move: the engines' own loop and the bounds around it. Without, they stay at the maximum."""
        ...

    def initial(self) -> Any:
        """The memory before the first call."""
        ...

    def decide(self, spec: LLMDeploymentSpec, observed: Observed, memory: Any, now: float) -> tuple[Decision, Any]:
        """What to do now, and what to remember. `now` is monotonic seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A law as the registry knows it: `make` turns the knob."""

    knob: Knob
    make: Callable[[float], Law]

    def default(self) -> Law:
        """As its authors publish it."""
        return self.make(self.knob.default)


def engines_under(law: Law, spec: LLMDeploymentSpec) -> LLMDeploymentSpec:
    """The spec that the engines start with under this law: one that moves no limits pins them at their maximum."""
    if law.admits:
        return spec
    concurrency = spec.admission.concurrency
    pinned = concurrency.model_copy(update={"min": concurrency.max})
    return spec.model_copy(
        update={"admission": spec.admission.model_copy(update={"mode": "Off", "concurrency": pinned})}
    )


def current(spec: LLMDeploymentSpec, observed: Observed) -> int:
    """What the Deployment asks for now; minReplicas where there is none yet."""
    return spec.scaling.min_replicas if observed.replicas is None else observed.replicas


def bounds(spec: LLMDeploymentSpec) -> tuple[int, int]:
    """The fewest and the most replicas."""
    return spec.scaling.min_replicas, max(spec.scaling.min_replicas, spec.scaling.max_replicas)


def ask(spec: LLMDeploymentSpec, observed: Observed, law: str, wanted: int, why: str) -> Decision:
    """A peer's decision: `wanted` inside [minReplicas, maxReplicas], nothing about admission."""
    low, high = bounds(spec)
    after = min(max(wanted, low), high)
    before = current(spec, observed)
    reasons: tuple[Reason, ...] = ()
    if after != before:
        reasons = (Reason("replicas", before, after, law, f"{before} → {after} replicas: {why}"),)
    return Decision(replicas=after, desired=after, victims=leaving(observed, max(0, before - after)), reasons=reasons)


def leaving(observed: Observed, count: int) -> tuple[str, ...]:
    """The pods that a ReplicaSet deletes by itself: those not ready first, then the newest (Kubernetes documentation,
    "ReplicaSet", scaling; no pod deletion cost is set by these laws)."""
    staying = [pod for pod in observed.pods if pod.phase != "draining"]
    return tuple(pod.name for pod in sorted(staying, key=_order)[:count])


def _order(pod: PodView) -> tuple[bool, float, str]:
    return pod.phase == "ready", -pod.since, pod.name
