"""Knative's pod autoscaler (KPA): mean concurrency over a stable window of 60 s, and a panic window of 6 s.

Source: knative/serving, pkg/autoscaler/scaling/autoscaler.go and config/core/configmaps/autoscaler.yaml. The stable
count is ceil(mean over 60 s / target), within [floor(ready / 2), ceil(1000 × ready)]; the panic count is the same over
6 s. Panic mode begins when ceil(panic mean / target) is at least twice the ready pods. It takes the larger of both
counts and never scales down, until 60 s after the panic threshold was last exceeded. The target is 100 requests at
70 % utilisation. Concurrency counts the requests in the pods, waiting or running. The buffering activator is not
modelled, since at least one replica always exists.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.policies.base import PeerLaw, Recommendation
from sluice_sim.policies.metrics import moving_window
from sluice_sim.policies.metrics.samples import Seen
from sluice_sim.policies.policy import Entry, Knob

STABLE: Final = 60.0  # seconds
PANIC: Final = 6.0  # 10 % of the stable window
THRESHOLD: Final = 2.0  # of panic count / ready pods
UTILISATION: Final = 0.7
UP_RATE: Final = 1000.0
DOWN_RATE: Final = 2.0
CONCURRENCY: Final = Knob("target", 100.0, (4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 100.0), "requests")


@dataclass(frozen=True, slots=True)
class KpaMemory:
    """The window of concurrency, and the state of panic mode: when it was last triggered, and its largest count."""

    started: bool = False
    concurrency: moving_window.Points = ()
    panic_at: float | None = None
    panic_most: int = 0


@dataclass(frozen=True, slots=True)
class Kpa(PeerLaw[KpaMemory]):
    """`setting` is the target concurrency before the utilisation of 70 %."""

    setting: float = CONCURRENCY.default
    name: str = "kpa"
    knob: Knob = CONCURRENCY
    memory_type: ClassVar = KpaMemory

    def recommend(
        self, spec: LLMDeploymentSpec, seen: Seen, memory: KpaMemory, now: float
    ) -> Recommendation[KpaMemory]:
        """The count follows the mean concurrency alone; the previous count has no influence."""
        ready = seen.serving
        if not memory.started:  # as in Knative, several pods start in panic mode: without history it would scale down
            memory = KpaMemory(True, (), now if ready > 1 else None, ready)
        if seen.ready:  # pods without a sample count as busy as the mean of the others
            inside = sum(sample.running + sample.waiting for _, sample in seen.ready)
            memory = replace(
                memory, concurrency=moving_window.add(memory.concurrency, now, inside * ready / len(seen.ready), STABLE)
            )
        stable, panic = (moving_window.mean(memory.concurrency, now, window) for window in (STABLE, PANIC))
        if stable is None:
            return Recommendation(seen.replicas, "", memory)
        wanted, memory = scale(
            memory, stable, stable if panic is None else panic, self.setting * UTILISATION, ready, now
        )
        why = f"{stable:.3g} requests inside on the mean, {self.setting * UTILISATION:g} per replica wanted."
        return Recommendation(wanted, why, memory)


def scale(
    memory: KpaMemory,
    stable: float,
    panic: float,
    target: float,
    ready: int,
    now: float,
    up_rate: float = UP_RATE,
    down_rate: float = DOWN_RATE,
) -> tuple[int, KpaMemory]:
    """The count for the means of both windows (concurrency summed over all pods), and the state of panic mode."""
    pods = max(1, ready)
    low, high = math.floor(pods / down_rate), math.ceil(up_rate * pods)
    calm = min(max(math.ceil(stable / target), low), high)
    hurried = min(max(math.ceil(panic / target), low), high)
    over = math.ceil(panic / target) / pods >= THRESHOLD
    if over:
        memory = replace(memory, panic_at=now)
    elif memory.panic_at is not None and memory.panic_at + STABLE < now:
        memory = replace(memory, panic_at=None, panic_most=0)
    if memory.panic_at is None:
        return calm, memory
    memory = replace(memory, panic_most=max(memory.panic_most, calm, hurried))
    return memory.panic_most, memory


KPA: Final = Entry(CONCURRENCY, Kpa)
