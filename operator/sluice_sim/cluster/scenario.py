"""The settings of a simulation besides the spec and the trace: hardware, disturbances and seed.

Random numbers are drawn by name, so a run is a function of its inputs, and two laws under the same seed face the same
cold starts and pod failures.
"""

import random
from dataclasses import dataclass
from typing import Final, Literal

from sluice_perfmodel.step_time import StepTimeModel

USUAL_MODEL_LENGTH: Final = 8192  # tokens, without spec.model.maxModelLength; an engine reads it from the model
Routing = Literal["round_robin", "least_loaded", "prefix_aware"]
Mode = Literal["exact", "coarse"]
MODES: Final[tuple[Mode, ...]] = ("exact", "coarse")
MOST_WALL: Final = 230 * 365.25 * 86_400  # seconds since 1970: the year 2200, the latest supported date
FAILS_WITHIN: Final = 3600.0  # a pod that fails does so within this many seconds of becoming ready


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a simulation. Times in seconds, lengths in tokens, shares 0..1. `seed` gives all randomness."""

    profile: StepTimeModel  # the step-time model that engines publish; true times: `truth`
    kv_tokens: int
    interval: float = 5.0  # between two scrapes and decisions
    cold_start: float = 60.0  # mean time from the decision to ready
    cold_start_spread: float = 0.0  # uniform within ± this share of the mean
    block_size: int = 16
    max_model_length: int = USUAL_MODEL_LENGTH
    routing: Routing = "round_robin"
    mode: Mode = "exact"
    seed: int = 0
    pod_failures: float = 0.0  # share of pods that fail once, uniformly within the hour after they became ready
    metrics_delay: float = 0.0  # age of each scrape when the law sees it as fresh
    metrics_loss: float = 0.0  # share of scrapes that are lost
    profile_error: float = 0.0  # true step time / published step time − 1
    begin: int | None = None  # replicas ready when the trace begins; None: the fewest that the spec allows then
    wall: float | None = None  # begin of the trace, seconds since 1970, for spec.scaling.schedules; None: no schedules

    def __post_init__(self) -> None:
        """Check the ranges. Raises ValueError."""
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
        """The true step-time model: the published one scaled by 1 + `profile_error`."""
        return self.profile.scaled(1.0 + self.profile_error)


class Chance:
    """The random choices of a run.

    Cold starts and failures are functions of the seed and the pod's name, whatever the order of the calls; lost
    scrapes are one sequence per seed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._scrapes = random.Random(f"{settings.seed}/scrapes")

    def cold_start(self, pod: str, start: int) -> float:
        """Duration in seconds of a pod's `start`-th start (1, 2, …)."""
        spread = self._settings.cold_start_spread
        return self._settings.cold_start * (1.0 + spread * (2.0 * self._drawn(f"cold/{pod}/{start}") - 1.0))

    def failure(self, pod: str) -> float | None:
        """Seconds between ready and the failure of this pod; None if it does not fail."""
        if self._drawn(f"fails/{pod}") >= self._settings.pod_failures:
            return None
        return FAILS_WITHIN * self._drawn(f"when/{pod}")

    def scrape_lost(self) -> bool:
        """True if this scrape is lost."""
        return self._settings.metrics_loss > 0 and self._scrapes.random() < self._settings.metrics_loss

    def _drawn(self, name: str) -> float:
        return random.Random(f"{self._settings.seed}/{name}").random()
