"""What a simulation knows besides the spec and the trace: hardware, weather, seed. Also: one kind of chance, drawn by
name, so that a run is a function of its inputs and two laws under one seed meet the same weather."""

import random
from dataclasses import dataclass
from typing import Final, Literal

from sluice_law.steptime import StepTimeModel

USUAL_MODEL_LENGTH: Final = 8192  # where the spec does not say: the engine would read it from the model
Routing = Literal["round_robin", "least_loaded", "prefix_aware"]
ROUTINGS: Final[tuple[Routing, ...]] = ("round_robin", "least_loaded", "prefix_aware")
Mode = Literal["exact", "coarse"]
MODES: Final[tuple[Mode, ...]] = ("exact", "coarse")
MOST_WALL: Final = 230 * 365.25 * 86_400  # seconds since 1970: a calendar goes no further than it can be trusted
FAILS_WITHIN: Final = 3600.0  # seconds after it became ready: when a pod that fails does so


@dataclass(frozen=True, slots=True)
class Settings:
    """Seconds, tokens, shares. All that is random is drawn from `seed`."""

    profile: StepTimeModel  # what one step costs, and what engines publish of it
    kv_tokens: int
    interval: float = 5.0  # between two scrapes and decisions
    cold_start: float = 60.0  # from the decision to ready, on the mean
    cold_start_spread: float = 0.0  # ± this share of it, uniform
    block_size: int = 16
    max_model_length: int = USUAL_MODEL_LENGTH
    routing: Routing = "round_robin"
    mode: Mode = "exact"
    seed: int = 0
    pod_failures: float = 0.0  # share of pods that die once, at a time uniform in the hour after they became ready
    metrics_delay: float = 0.0  # how old each scrape is when the law sees it as new
    metrics_loss: float = 0.0  # share of scrapes that bring nothing
    profile_error: float = 0.0  # true step time over the published one, less 1
    begin: int | None = None  # replicas ready when the trace begins; None: as few as the spec allows then
    wall: float | None = None  # seconds since 1970 when the trace begins, for spec.scaling.schedules; None: no calendar

    def __post_init__(self) -> None:
        """Raises ValueError for what no simulation can have."""
        for wrong, sentence in (
            (self.kv_tokens < self.block_size, "the KV cache must hold a block or more"),
            (not self.interval > 0, "the interval must be above 0"),
            (
                self.cold_start < 0 or not 0 <= self.cold_start_spread <= 1,
                "a cold start is 0 s or more, ± 0 to 1 of it",
            ),
            (not 0 <= self.pod_failures <= 1, "pod_failures is a share between 0 and 1"),
            (
                not 0 <= self.metrics_loss <= 1 or self.metrics_delay < 0,
                "metrics are late by ≥ 0 s and lost by a share",
            ),
            (self.begin is not None and self.begin < 0, "a fleet begins with 0 replicas or more"),
            (
                self.wall is not None and not 0 <= self.wall < MOST_WALL,
                "a trace begins between 1970 and 2200",
            ),
            (self.profile_error <= -1, "a step takes time: profile_error must be above −1"),
        ):
            if wrong:
                raise ValueError(sentence)

    @property
    def truth(self) -> StepTimeModel:
        """What steps really cost."""
        return self.profile.scaled(1.0 + self.profile_error)


class Chance:
    """Every random choice of a run, each a function of the seed and of what it is about, in whatever order they fall."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._scrapes = random.Random(f"{settings.seed}/scrapes")

    def cold_start(self, pod: str, start: int) -> float:
        """Seconds that this start (the pod's first, second, …) takes."""
        spread = self._settings.cold_start_spread
        return self._settings.cold_start * (1.0 + spread * (2.0 * self._drawn(f"cold/{pod}/{start}") - 1.0))

    def failure(self, pod: str) -> float | None:
        """Seconds after it became ready at which this pod dies; None: it does not."""
        if self._drawn(f"fails/{pod}") >= self._settings.pod_failures:
            return None
        return FAILS_WITHIN * self._drawn(f"when/{pod}")

    def scrape_lost(self) -> bool:
        """Whether this scrape brings nothing."""
        return self._settings.metrics_loss > 0 and self._scrapes.random() < self._settings.metrics_loss

    def _drawn(self, name: str) -> float:
        return random.Random(f"{self._settings.seed}/{name}").random()
