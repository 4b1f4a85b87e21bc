"""Shared bases of the laws: the memory before the first call, and the steps that all laws of other systems have in common.

A law of another system recommends a number of replicas; `PeerLaw` classifies the pods before and turns the
recommendation into a decision afterwards. `HpaLaw` is a peer that acts through one HorizontalPodAutoscaler.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.values import Decision, Observed
from sluice_sim.policies.hpa.behavior import DEFAULT, Behavior, HpaMemory, due, settle
from sluice_sim.policies.metrics.samples import Seen, see
from sluice_sim.policies.policy import ask, bounds

M = TypeVar("M")


class Recommendation(NamedTuple, Generic[M]):
    """The replicas that a law wants, the reason as the rest of a sentence, and the memory for the next call."""

    replicas: int
    why: str
    memory: M


class PeerLaw(ABC, Generic[M]):
    """The law of another system: a function of the pods' samples and its own memory, on replicas only."""

    __slots__ = ()
    name: str
    admits: ClassVar[bool] = False
    memory_type: ClassVar[Callable[[], Any]]

    @abstractmethod
    def recommend(self, spec: LLMDeploymentSpec, seen: Seen, memory: M, now: float) -> Recommendation[M]:
        """The recommendation at `now` (monotonic seconds), before it is clamped to minReplicas and maxReplicas."""

    def initial(self) -> M:
        """The memory of a controller that has just started."""
        memory: M = type(self).memory_type()
        return memory

    def decide(self, spec: LLMDeploymentSpec, observed: Observed, memory: M, now: float) -> tuple[Decision, M]:
        """The clamped recommendation as a decision, and the next memory."""
        wanted = self.recommend(spec, see(spec, observed, now), memory, now)
        return ask(spec, observed, self.name, wanted.replicas, wanted.why), wanted.memory


class HpaLaw(PeerLaw[HpaMemory]):
    """A law that acts through one HorizontalPodAutoscaler: it gives the metric's count, every 15 s."""

    __slots__ = ()
    memory_type = HpaMemory
    behavior: ClassVar[Behavior] = DEFAULT

    @abstractmethod
    def metric_count(self, seen: Seen) -> tuple[int | None, str]:
        """The replicas that follow from the metric (None without a sample), and the reason."""

    def recommend(
        self, spec: LLMDeploymentSpec, seen: Seen, memory: HpaMemory, now: float
    ) -> Recommendation[HpaMemory]:
        """The metric's count after the HPA's stabilisation and scaling policies."""
        if not due(memory, now):
            return Recommendation(seen.replicas, "", memory)
        count, why = self.metric_count(seen)
        after, memory = settle(memory, self.behavior, seen.replicas, count, bounds(spec), now)
        return Recommendation(after, why, memory)
