"""One replica: its phases (loading, ready, draining, failed), and the metrics that the control law sees."""

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.scheduler import SchedulerConfig
from sluice_operator.autoscaler.values import ColdStart, EngineSample, PodPhase, PodView
from sluice_sim.cluster.scenario import Chance, Settings
from sluice_sim.engine.coarse.engine import CoarseEngine
from sluice_sim.engine.exact import SimEngine
from sluice_sim.engine.exposition import EngineCounters, EngineState
from sluice_sim.engine.offered_request import OfferedRequest
from sluice_sim.engine.step_times import Profiled


class Engine(Protocol):
    """The engine interface that a fleet uses, exact or coarse.

    `pending_prefill_tokens`: prompt tokens still to be computed for requests without a first token, as estimated by the
    router."""

    limits: LimitController
    counters: EngineCounters
    pending_prefill_tokens: int

    @property
    def requests(self) -> int:
        """Requests in flight: running or waiting."""
        ...

    def submit(self, request: OfferedRequest) -> OfferedRequest | None:
        """Submit a request now.

        Returns the request that is not kept: this one if it is rejected, a waiting one if it is evicted, else None."""
        ...

    def run_until(self, until: float, *, lazily: bool = False) -> None:
        """Simulate up to `until` (s)."""
        ...

    def scrape(self) -> EngineSample:
        """The current /metrics, parsed."""
        ...

    def state(self) -> EngineState:
        """The engine's state at this instant."""
        ...

    def lost(self) -> list[OfferedRequest]:
        """The requests in flight, which a failure of the replica loses."""
        ...


def started_engine(settings: Settings, config: SchedulerConfig, limits: Limits, now: float) -> Engine:
    """An engine of the settings' mode, ready at `now` (s) with these base limits.

    Its steps take the time of `settings.truth`; it publishes `settings.profile`."""
    truth, published = settings.truth, settings.profile
    if settings.mode == "exact":
        return SimEngine(Profiled(truth, published), config, limits, now)
    return CoarseEngine(truth, config, limits, now, published)


@dataclass(slots=True)
class Pod:
    """One replica: loading until `ready_at`, draining once `leaving`; fails at `fails_at` and then loads again."""

    name: str
    created_at: float
    ready_at: float
    engine: Engine | None = None
    leaving: bool = False
    left_at: float | None = None
    starts: int = 1
    began_at: float = field(init=False)  # when the latest start began
    fails_at: float = inf
    _samples: deque[tuple[float, EngineSample]] = field(default_factory=deque)
    _seen: tuple[float, EngineSample] | None = None

    def __post_init__(self) -> None:
        """The first start begins at the creation of the pod."""
        self.began_at = self.created_at

    @property
    def requests(self) -> int:
        """Requests in flight; 0 while loading."""
        return 0 if self.engine is None else self.engine.requests

    @property
    def pending_prefill_tokens(self) -> int:
        """Prompt tokens still to be computed for requests without a first token, as estimated by the router."""
        return 0 if self.engine is None else self.engine.pending_prefill_tokens

    @property
    def next_event(self) -> float:
        """The time at which the pod becomes ready, or fails."""
        return self.ready_at if self.engine is None else self.fails_at

    def die(self, now: float, chance: Chance) -> list[OfferedRequest]:
        """The container fails and restarts with an empty state. Returns the lost requests."""
        lost = [] if self.engine is None else self.engine.lost()
        self.starts += 1
        self.engine, self.fails_at = None, inf
        self.began_at = now
        self.ready_at = now + chance.cold_start(self.name, self.starts)
        self._samples.clear()
        self._seen = None
        return lost

    def view(self, now: float, settings: Settings, chance: Chance) -> PodView:
        """The pod as the law sees it. A delayed sample appears fresh; after a lost scrape the previous one stays."""
        if self.engine is None:
            return PodView(self.name, "loading", self.began_at, start_age=now - self.began_at)
        if not chance.scrape_lost():
            self._samples.append((now, self.engine.scrape()))
        while self._samples and self._samples[0][0] <= now - settings.metrics_delay:
            at, sample = self._samples.popleft()
            self._seen = (at + settings.metrics_delay, sample)
        phase: PodPhase = "draining" if self.leaving else "ready"
        if self._seen is None:
            return PodView(self.name, phase, self.ready_at, cold_start=self._start())
        sample_at, sample = self._seen[0], self._seen[1]
        return PodView(self.name, phase, self.ready_at, sample, sample_at, cold_start=self._start())

    def _start(self) -> ColdStart | None:
        """The duration of the first start, as a cluster would measure it.

        None for a pod that was ready from the beginning, and after a restart."""
        took = self.ready_at - self.created_at
        return ColdStart(0.0, 0.0, took, 0.0, took) if self.starts == 1 and took > 0 else None
