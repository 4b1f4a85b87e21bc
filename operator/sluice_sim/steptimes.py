"""What a step takes, and what an engine has come to believe of itself: two questions, one answer per kind of run.

A simulation asks a profile, and its engines publish what they were told. A replay asks a recorded run, and its engine
learns its model step by step, as the recorded one did.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sluice_engine.steptime import StepTimeFit
from sluice_law.steptime import StepTimeModel, StepWork


class StepTimes(Protocol):
    """Seconds of steps, and the engine's own model of them."""

    @property
    def belief(self) -> StepTimeModel:
        """The engine's model now."""
        ...

    @property
    def profile(self) -> StepTimeModel | None:
        """What every step follows, where there is such a thing: runs of like steps then have a closed form."""
        ...

    def end(self, work: StepWork, begun: float) -> float:
        """When the step that begins now ends."""
        ...

    def took(self, work: StepWork, steps: int = 1, plain: bool = True) -> None:
        """So many steps of this kind have ended; one that also copied blocks is not plain."""
        ...


class Profiled:
    """Steps take what `profile` says; the engine believes `published` from its first step on."""

    def __init__(self, profile: StepTimeModel, published: StepTimeModel | None = None) -> None:
        self.profile: StepTimeModel | None = profile
        self._profile, self._published, self._steps = profile, published or profile, 0

    @property
    def belief(self) -> StepTimeModel:
        """The published model, with as many steps behind it as were taken. Asked for in every step."""
        own = self._published
        terms = own.base, own.prefill_token, own.prefill_context, own.sequence, own.kv_token
        return StepTimeModel(*terms, own.error_ratio, self._steps)

    def end(self, work: StepWork, begun: float) -> float:
        """By the profile."""
        return begun + self._profile.predict(work)

    def took(self, work: StepWork, steps: int = 1, plain: bool = True) -> None:
        """Counted."""
        self._steps += steps


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step of a real engine: seconds of its clock, and how long it counted the step itself."""

    ended_at: float
    seconds: float


class Recorded:
    """Steps end when those of the recording did, one after another. Raises IndexError beyond its last."""

    profile: StepTimeModel | None = None

    def __init__(self, steps: Sequence[RecordedStep]) -> None:
        self._steps, self._begun, self._ended, self._fit = steps, 0, 0, StepTimeFit()

    @property
    def belief(self) -> StepTimeModel:
        """As the recorded engine fitted it, from the same steps."""
        return self._fit.model

    def end(self, work: StepWork, begun: float) -> float:
        """As recorded."""
        self._begun += 1
        return self._steps[self._begun - 1].ended_at

    def took(self, work: StepWork, steps: int = 1, plain: bool = True) -> None:
        """Learned, from the recorded seconds; as the engine does, from plain steps only."""
        self._ended += 1
        if plain:
            self._fit.observe(work, self._steps[self._ended - 1].seconds)
