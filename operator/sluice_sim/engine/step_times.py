"""Sources of step durations, together with the step-time model that the engine publishes.

A simulation takes durations from a profile, and its engines publish a given model. A replay takes them from a recorded
run, and its engine fits its model step by step, as the recorded engine did.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sluice_engine.control.step_time_fit import StepTimeFit
from sluice_perfmodel.step_time import StepTimeModel, StepWork


class StepTimes(Protocol):
    """Step durations in seconds, and the engine's own model of them."""

    @property
    def belief(self) -> StepTimeModel:
        """The engine's current model."""
        ...

    @property
    def profile(self) -> StepTimeModel | None:
        """The model that determines every step, or None. With it, runs of decode steps have a closed form."""
        ...

    def end(self, work: StepWork, begun: float) -> float:
        """End time (s) of a step with this `work` that begins at `begun`."""
        ...

    def took(self, work: StepWork, steps: int = 1, plain: bool = True) -> None:
        """Record that `steps` steps with this `work` have ended. `plain` is False if a step also copied blocks."""
        ...


class Profiled:
    """`profile` gives the step durations. The engine publishes `published` (default: `profile`) from its first step."""

    def __init__(self, profile: StepTimeModel, published: StepTimeModel | None = None) -> None:
        self.profile: StepTimeModel | None = profile
        self._profile, self._published, self._steps = profile, published or profile, 0

    @property
    def belief(self) -> StepTimeModel:
        """The published model, with the number of steps taken so far. Every step reads this property."""
        own = self._published
        terms = own.base, own.prefill_token, own.prefill_context, own.sequence, own.kv_token
        return StepTimeModel(*terms, own.error_ratio, self._steps)

    def end(self, work: StepWork, begun: float) -> float:
        """End time (s) by the profile."""
        return begun + self._profile.predict(work)

    def took(self, work: StepWork, steps: int = 1, plain: bool = True) -> None:
        """Count the steps."""
        self._steps += steps


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step of a real engine: its end on the engine's clock (s), and the duration that the engine measured (s)."""

    ended_at: float
    seconds: float


class Recorded:
    """Steps end when the steps of the recording ended, in order.

    `end` and `took` raise IndexError after the last recorded step."""

    profile: StepTimeModel | None = None

    def __init__(self, steps: Sequence[RecordedStep]) -> None:
        self._steps, self._begun, self._ended, self._fit = steps, 0, 0, StepTimeFit()

    @property
    def belief(self) -> StepTimeModel:
        """The model that the recorded engine fitted, from the same steps."""
        return self._fit.model

    def end(self, work: StepWork, begun: float) -> float:
        """Recorded end time (s) of the next step."""
        self._begun += 1
        return self._steps[self._begun - 1].ended_at

    def took(self, work: StepWork, steps: int = 1, plain: bool = True) -> None:
        """Fit the model to the recorded seconds. As in the engine, only plain steps count."""
        self._ended += 1
        if plain:
            self._fit.observe(work, self._steps[self._ended - 1].seconds)
