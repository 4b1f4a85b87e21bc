"""llm-d's Workload Variant Autoscaler, saturation analyser v1: spare KV cache and queue of unsaturated replicas.

Source: llm-d-workload-variant-autoscaler, docs/user-guide/saturation-analyzer.md. A replica is unsaturated while
KV < 0.80 and queue < 5, each the maximum over one minute. The law adds one replica if the mean spare of the
unsaturated replicas is below 0.1 (KV) or 3 (queue), or if all replicas are saturated. It removes one if the spare
would still suffice at N/(N−1) of the load. It holds while a replica is pending or the last count is not yet applied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import ClassVar, Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.policies.base import PeerLaw, Recommendation
from sluice_sim.policies.metrics import moving_window
from sluice_sim.policies.metrics.samples import Seen
from sluice_sim.policies.policy import Entry, Knob, bounds
from sluice_sim.policies.wva import hpa

WINDOW: Final = 60.0  # seconds
KV_FULL: Final = 0.80
QUEUE_FULL: Final = 5.0
KV_SPARE: Final = 0.1
QUEUE_SPARE: Final = Knob(
    "queueSpareTrigger", 3.0, (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 4.9), "requests", most=QUEUE_FULL
)

Load = tuple[float, float]  # KV occupancy, requests waiting


@dataclass(frozen=True, slots=True)
class Peaks:
    """Each pod's KV occupancy and queue over the last minute."""

    pods: Mapping[str, tuple[moving_window.Points, moving_window.Points]] = field(default_factory=dict)

    def add(self, seen: Seen, now: float) -> "Peaks":
        """The peaks with the scrapes of this call; removed pods are dropped."""
        grown = {}
        for pod, sample in seen.ready:
            kv, queue = self.pods.get(pod.name, ((), ()))
            grown[pod.name] = (
                moving_window.add(kv, now, sample.kv_occupancy, WINDOW),
                moving_window.add(queue, now, sample.waiting, WINDOW),
            )
        return Peaks(grown)

    def of(self, pod: str, now: float) -> Load:
        """max_over_time of both over one minute. Raises KeyError for an unknown pod."""
        kv, queue = self.pods[pod]
        return moving_window.most(kv, now, WINDOW), moving_window.most(queue, now, WINDOW)


@dataclass(frozen=True, slots=True)
class SaturationMemory:
    """The peaks and the published count."""

    peaks: Peaks = field(default_factory=Peaks)
    published: hpa.Published = field(default_factory=hpa.Published)


@dataclass(frozen=True, slots=True)
class WvaV1(PeerLaw[SaturationMemory]):
    """`setting` is the spare queue (requests) below which a replica is added."""

    setting: float = QUEUE_SPARE.default
    name: str = "wva-v1"
    knob: Knob = QUEUE_SPARE
    memory_type: ClassVar = SaturationMemory

    def recommend(
        self, spec: LLMDeploymentSpec, seen: Seen, memory: SaturationMemory, now: float
    ) -> Recommendation[SaturationMemory]:
        """Update the peaks at every call; publish a count once a minute."""
        peaks, published = memory.peaks.add(seen, now), memory.published
        if hpa.is_due(published, now):
            loads = [peaks.of(pod.name, now) for pod, _ in seen.ready]
            low, high = bounds(spec)
            wanted: int | None = min(max(seen.replicas + analyse(loads, self.setting), low), high)
            if hpa.is_under_way(published, seen):
                wanted = published.wanted
            elif not seen.settled:
                wanted = seen.replicas
            published = hpa.publish(published, wanted, now)
        after, published = hpa.follow(spec, published, seen, now)
        why = f"{published.wanted} are wanted for the spare KV and queue of the last minute."
        return Recommendation(after, why, SaturationMemory(peaks, published))


def analyse(loads: Sequence[Load], queue_spare: float = QUEUE_SPARE.default) -> int:
    """The change of replicas (+1, −1 or 0) for the peak loads of the replicas with a fresh sample."""
    free = [(kv, queue) for kv, queue in loads if kv < KV_FULL and queue < QUEUE_FULL]
    if not loads:
        return 0
    if not free:
        return 1
    kv, queue = fmean(load[0] for load in free), fmean(load[1] for load in free)
    if _is_short(kv, queue, queue_spare):
        return 1
    if len(free) < 2:
        return 0
    scale = len(free) / (len(free) - 1)
    return 0 if _is_short(kv * scale, queue * scale, queue_spare) else -1


def _is_short(kv: float, queue: float, queue_spare: float) -> bool:
    return KV_FULL - kv < KV_SPARE - 1e-12 or QUEUE_FULL - queue < queue_spare - 1e-12


WVA_V1: Final = Entry(QUEUE_SPARE, WvaV1)
