"""The interface of a control law: the signature of decide() with a memory of its own, and one knob to tune.

The laws of other systems get exactly the input of decide(). They move replicas only; their engines admit up to a fixed
maximum, as in the original systems. Queueing by deadline and deferring late requests are part of admission
(control.md, "Admission"), so only laws with `admits` have them. With them llm-d's own law would do better on T4 than
llm-d measured, and the profile is calibrated on that measurement (operator/LOG.md has the figures with deadline
queueing for all laws).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.values import Decision, Observed, PodView, Reason

GRID: Final = 9  # values per knob, the same for every law: equal tuning effort


@dataclass(frozen=True, slots=True)
class Knob:
    """The one number that a law's documentation recommends to tune.

    `most` is the upper bound for a search beyond the grid."""

    name: str
    default: float
    grid: tuple[float, ...]
    unit: str = ""
    most: float = math.inf


class Law(Protocol):
    """A control law at one value of its knob. It is stateless: the caller passes its opaque memory."""

    @property
    def name(self) -> str:
        """The name in the registry."""
        ...

    @property
    def knob(self) -> Knob:
        """The tunable number."""
        ...

    @property
    def setting(self) -> float:
        """The value of the knob."""
        ...

    @property
    def admits(self) -> bool:
        """True if the concurrency limits move (fast loop and its bounds). If False, they stay at the maximum."""
        ...

    def initial(self) -> Any:
        """The memory before the first call."""
        ...

    def decide(self, spec: LLMDeploymentSpec, observed: Observed, memory: Any, now: float) -> tuple[Decision, Any]:
        """The decision at `now` (monotonic seconds) and the next memory."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the registry: `make` builds the law for a value of its knob."""

    knob: Knob
    make: Callable[[float], Law]

    def default(self) -> Law:
        """The law at its published default."""
        return self.make(self.knob.default)


def engines_under(law: Law, spec: LLMDeploymentSpec) -> LLMDeploymentSpec:
    """The spec that the engines start with under this law. A law without admission pins the limits at their maximum."""
    if law.admits:
        return spec
    concurrency = spec.admission.concurrency
    pinned = concurrency.model_copy(update={"min": concurrency.max})
    return spec.model_copy(
        update={"admission": spec.admission.model_copy(update={"mode": "Off", "concurrency": pinned})}
    )


def current(spec: LLMDeploymentSpec, observed: Observed) -> int:
    """The Deployment's spec.replicas; minReplicas if there is no Deployment yet."""
    return spec.scaling.min_replicas if observed.replicas is None else observed.replicas


def bounds(spec: LLMDeploymentSpec) -> tuple[int, int]:
    """(minReplicas, maxReplicas), with maxReplicas at least minReplicas."""
    return spec.scaling.min_replicas, max(spec.scaling.min_replicas, spec.scaling.max_replicas)


def ask(spec: LLMDeploymentSpec, observed: Observed, law: str, wanted: int, why: str) -> Decision:
    """A decision on replicas only: `wanted` clamped to [minReplicas, maxReplicas], with no change of admission."""
    low, high = bounds(spec)
    after = min(max(wanted, low), high)
    before = current(spec, observed)
    reasons: tuple[Reason, ...] = ()
    if after != before:
        reasons = (Reason("replicas", before, after, law, f"{before} → {after} replicas: {why}"),)
    return Decision(
        replicas=after, desired=after, scale_in_candidates=leaving(observed, max(0, before - after)), reasons=reasons
    )


def leaving(observed: Observed, count: int) -> tuple[str, ...]:
    """The `count` pods that a ReplicaSet deletes by default: pods that are not ready first, then the newest.

    Source: Kubernetes documentation, "ReplicaSet", scaling. These laws set no pod deletion cost."""
    staying = [pod for pod in observed.pods if pod.phase != "draining"]
    return tuple(pod.name for pod in sorted(staying, key=_order)[:count])


def _order(pod: PodView) -> tuple[bool, float, str]:
    return pod.phase == "ready", -pod.since, pod.name
