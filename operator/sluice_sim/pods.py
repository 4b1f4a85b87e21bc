"""One replica's life: loading, ready, drained or dead; and what of its metrics has reached the law."""

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from sluice_engine.admission import Bounds, Limits
from sluice_engine.scheduler import SchedulerConfig
from sluice_law.steptime import StepTimeModel
from sluice_operator.decide.values import ColdStart, EngineSample, PodPhase, PodView
from sluice_sim.books import Gauges
from sluice_sim.coarse import CoarseEngine
from sluice_sim.engine import SimEngine
from sluice_sim.settings import Chance, Mode, Settings
from sluice_sim.steptimes import Profiled
from sluice_sim.visit import Visit


class Engine(Protocol):
    """What a fleet needs of an engine, exact or coarse."""

    limits: Limits
    tokens: int

    @property
    def requests(self) -> int:
        """In flight."""
        ...

    def submit(self, visit: Visit) -> Visit | None:
        """A request arrives now. Says who is refused: this one, one that waited and makes way for it, or nobody."""
        ...

    def run_until(self, until: float, lazily: bool = False) -> None:
        """Pass time."""
        ...

    def scrape(self) -> EngineSample:
        """What /metrics says, parsed."""
        ...

    def gauges(self) -> Gauges:
        """This instant."""
        ...

    def lost(self) -> list[Visit]:
        """Who is here."""
        ...


def started_engine(
    mode: Mode, truth: StepTimeModel, config: SchedulerConfig, bounds: Bounds, now: float, published: StepTimeModel
) -> Engine:
    """An engine of the mode, ready at `now`."""
    if mode == "exact":
        return SimEngine(Profiled(truth, published), config, bounds, now)
    return CoarseEngine(truth, config, bounds, now, published)


@dataclass(slots=True)
class Pod:
    """One replica: loading until `ready_at`, draining once `leaving`; dies at `fails_at` and then loads again."""

    name: str
    created_at: float
    ready_at: float
    engine: Engine | None = None
    leaving: bool = False
    left_at: float | None = None
    starts: int = 1
    began_at: float = field(init=False)  # when the newest start began
    fails_at: float = inf
    _samples: deque[tuple[float, EngineSample]] = field(default_factory=deque)
    _seen: tuple[float, EngineSample] | None = None

    def __post_init__(self) -> None:
        """The first start begins with the pod."""
        self.began_at = self.created_at

    @property
    def requests(self) -> int:
        """In flight here."""
        return 0 if self.engine is None else self.engine.requests

    @property
    def tokens(self) -> int:
        """Prompt tokens to be computed for those that have no first token yet, as the gateway expects."""
        return 0 if self.engine is None else self.engine.tokens

    @property
    def next_event(self) -> float:
        """When it becomes ready, or dies."""
        return self.ready_at if self.engine is None else self.fails_at

    def die(self, now: float, chance: Chance) -> list[Visit]:
        """The container ends and starts again: everything that it knew is gone. Returns who was there."""
        lost = [] if self.engine is None else self.engine.lost()
        self.starts += 1
        self.engine, self.fails_at = None, inf
        self.began_at = now
        self.ready_at = now + chance.cold_start(self.name, self.starts)
        self._samples.clear()
        self._seen = None
        return lost

    def view(self, now: float, settings: Settings, chance: Chance) -> PodView:
        """What a law sees of it now: a late metric looks fresh, a lost one leaves the one before."""
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
        """How long the first start took, as a cluster would measure it; None for a pod that was there from the beginning,
        and for one that was started again."""
        took = self.ready_at - self.created_at
        return ColdStart(0.0, 0.0, took, 0.0, took) if self.starts == 1 and took > 0 else None
