"""The samples of a metrics pipeline: the newest plausible scrape of each pod within Prometheus's lookback period.

The laws of other systems get the same scrapes as decide(); only the limit of staleness differs (Prometheus
documentation, "Querying basics", staleness: a sample is used for five minutes).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.signals.freshness import is_valid
from sluice_operator.autoscaler.values import EngineSample, Observed, PodView
from sluice_sim.policies.policy import current

LOOK_BACK: Final = 300.0  # seconds

Metric = Callable[[EngineSample], float]


@dataclass(frozen=True, slots=True)
class Seen:
    """The pods by state and availability of a sample."""

    replicas: int  # the Deployment's spec.replicas
    ready: tuple[tuple[PodView, EngineSample], ...] = ()  # ready pods with a fresh, plausible sample
    missing: int = 0  # pods without a sample that run: ready ones without a fresh one, and loading ones
    pending: int = 0  # pods that do not run yet: unschedulable, scheduling or pulling
    leaving: tuple[tuple[PodView, EngineSample], ...] = ()  # draining pods with a fresh, plausible sample
    serving: int = 0  # ready pods, with or without a sample

    @property
    def existing(self) -> int:
        """Number of pods that are not draining: the Deployment's status.replicas."""
        return len(self.ready) + self.missing + self.pending

    @property
    def settled(self) -> bool:
        """True if every desired pod exists and has a fresh sample: no scaling is in progress."""
        return len(self.ready) == self.existing == self.replicas

    @property
    def scraped(self) -> tuple[tuple[PodView, EngineSample], ...]:
        """All pods that a query over the workload returns, including draining pods."""
        return self.ready + self.leaving


def see(spec: LLMDeploymentSpec, observed: Observed, now: float) -> Seen:
    """Classify the pods. Failed pods are ignored."""
    alive = [pod for pod in observed.pods if pod.phase != "failed"]
    answers = {pod.name: sample for pod in alive if (sample := _newest(pod, now)) is not None}
    staying = [pod for pod in alive if pod.phase != "draining"]
    ready = tuple((pod, answers[pod.name]) for pod in staying if pod.phase == "ready" and pod.name in answers)
    pending = sum(pod.phase in ("unschedulable", "scheduling", "pulling") for pod in staying)
    return Seen(
        replicas=current(spec, observed),
        ready=ready,
        missing=len(staying) - len(ready) - pending,
        pending=pending,
        leaving=tuple((pod, answers[pod.name]) for pod in alive if pod.phase == "draining" and pod.name in answers),
        serving=sum(pod.phase == "ready" for pod in alive),
    )


def _newest(pod: PodView, now: float) -> EngineSample | None:
    if pod.sample is None or pod.sample_at is None or not 0.0 <= now - pod.sample_at <= LOOK_BACK:
        return None
    return pod.sample if is_valid(pod.sample) else None


def waiting(sample: EngineSample) -> float:
    """Waiting requests of the engine."""
    return sample.waiting


def running(sample: EngineSample) -> float:
    """Running requests of the engine."""
    return sample.running


def occupancy(sample: EngineSample) -> float:
    """Share of the KV cache that running requests hold, 0..1."""
    return sample.kv_occupancy


def kv_tokens(sample: EngineSample) -> float:
    """Capacity of the KV cache in tokens."""
    return sample.kv_blocks * sample.block_size
