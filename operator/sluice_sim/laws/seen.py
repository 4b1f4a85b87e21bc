"""What a metrics pipeline has of the pods: the newest believable scrape of each, no older than Prometheus looks back.

Peers are given the same scrapes as decide(); only what counts as stale is theirs. (Prometheus documentation, "Querying
basics", staleness: a sample is used for five minutes.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.trust import is_sane
from sluice_operator.decide.values import EngineSample, Observed, PodView
from sluice_sim.laws.law import current

LOOK_BACK: Final = 300.0  # seconds

Metric = Callable[[EngineSample], float]


@dataclass(frozen=True, slots=True)
class Seen:
    """The pods that are not leaving, by what is known of them; and those that still answer while they leave."""

    replicas: int  # what the Deployment asks for
    ready: tuple[tuple[PodView, EngineSample], ...] = ()  # ready, with a believable scrape
    missing: int = 0  # running without a scrape: ready ones that were lost, and ones that still load
    pending: int = 0  # not running yet
    leaving: tuple[tuple[PodView, EngineSample], ...] = ()

    @property
    def existing(self) -> int:
        """Pods that are not leaving: the Deployment's status.replicas."""
        return len(self.ready) + self.missing + self.pending

    @property
    def settled(self) -> bool:
        """Whether every pod asked for is there and answers: nothing is under way."""
        return len(self.ready) == self.existing == self.replicas

    @property
    def scraped(self) -> tuple[tuple[PodView, EngineSample], ...]:
        """All that a query over the workload finds, leaving pods included."""
        return self.ready + self.leaving


def see(spec: LLMDeploymentSpec, observed: Observed, now: float) -> Seen:
    """Sort the pods. Failed ones count for nothing."""
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
    )


def _newest(pod: PodView, now: float) -> EngineSample | None:
    if pod.sample is None or pod.sample_at is None or not 0.0 <= now - pod.sample_at <= LOOK_BACK:
        return None
    return pod.sample if is_sane(pod.sample) else None


def waiting(sample: EngineSample) -> float:
    """Requests that wait in this engine."""
    return sample.waiting


def running(sample: EngineSample) -> float:
    """Requests that run in this engine."""
    return sample.running


def occupancy(sample: EngineSample) -> float:
    """Share of the KV cache that running requests hold, 0..1."""
    return sample.kv_occupancy


def kv_tokens(sample: EngineSample) -> float:
    """Tokens that the KV cache has room for."""
    return sample.kv_blocks * sample.block_size
