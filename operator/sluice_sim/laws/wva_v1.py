"""llm-d's Workload Variant Autoscaler, saturation analyser v1: spare KV and spare queue of replicas not yet full.

Source: llm-d-workload-variant-autoscaler, docs/user-guide/saturation-analyzer.md. A replica is not saturated while
KV < 0.80 and queue < 5, each the maximum of one minute. One more where the mean spare of those replicas is below 0.1
(KV) or 3 (queue); one less where it would still be at least that after N/(N−1) of the load; nothing new while a
replica is on its way or the count last wanted is not yet in force. Where all are saturated, the mean spare is nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.values import Decision, Observed
from sluice_sim.laws import moving, wva_hpa
from sluice_sim.laws.law import Entry, Knob, ask, bounds
from sluice_sim.laws.seen import Seen, see

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

    pods: Mapping[str, tuple[moving.Points, moving.Points]] = field(default_factory=dict)

    def add(self, seen: Seen, now: float) -> "Peaks":
        """With this call's scrapes; pods that are gone are forgotten."""
        grown = {}
        for pod, sample in seen.ready:
            kv, queue = self.pods.get(pod.name, ((), ()))
            grown[pod.name] = (
                moving.add(kv, now, sample.kv_occupancy, WINDOW),
                moving.add(queue, now, sample.waiting, WINDOW),
            )
        return Peaks(grown)

    def of(self, pod: str, now: float) -> Load:
        """max_over_time of both, one minute."""
        kv, queue = self.pods[pod]
        return moving.most(kv, now, WINDOW), moving.most(queue, now, WINDOW)


@dataclass(frozen=True, slots=True)
class SaturationMemory:
    """Peaks and what was published."""

    peaks: Peaks = field(default_factory=Peaks)
    published: wva_hpa.Published = field(default_factory=wva_hpa.Published)


@dataclass(frozen=True, slots=True)
class WvaV1:
    """`setting` is the spare queue that triggers."""

    setting: float = QUEUE_SPARE.default
    name: str = "wva-v1"
    knob: Knob = QUEUE_SPARE
    admits: bool = False

    def initial(self) -> SaturationMemory:
        """Nothing seen yet."""
        return SaturationMemory()

    def decide(
        self, spec: LLMDeploymentSpec, observed: Observed, memory: SaturationMemory, now: float
    ) -> tuple[Decision, SaturationMemory]:
        """Peaks at every call, a wanted count once a minute."""
        seen = see(spec, observed, now)
        peaks, published = memory.peaks.add(seen, now), memory.published
        if wva_hpa.is_due(published, now):
            loads = [peaks.of(pod.name, now) for pod, _ in seen.ready]
            low, high = bounds(spec)
            wanted: int | None = min(max(seen.replicas + analyse(loads, self.setting), low), high)
            if wva_hpa.is_under_way(published, seen):
                wanted = published.wanted
            elif not seen.settled:
                wanted = seen.replicas
            published = wva_hpa.publish(published, wanted, now)
        after, published = wva_hpa.follow(spec, published, seen, now)
        why = f"{published.wanted} are wanted for the spare KV and queue of the last minute."
        return ask(spec, observed, self.name, after, why), SaturationMemory(peaks, published)


def analyse(loads: Sequence[Load], queue_spare: float = QUEUE_SPARE.default) -> int:
    """+1, −1 or 0 replicas for the peak load of each replica that reports."""
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
