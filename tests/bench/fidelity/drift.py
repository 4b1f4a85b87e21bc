"""How fast the machine was, second by second, and steps that are as slow as it was then.

Two cores of a shared machine are at times half as fast as a minute before. Near the capacity that decides what a run
measures; it is no property of the engine, and no profile can know it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from sluice_law.steptime import StepTimeModel, StepWork
from sluice_sim.steptimes import Profiled

SECONDS = 1.0  # of one value: with four of them what is predicted was up to 21 % off, with one 10 %


def slowness(
    steps: Iterable[tuple[float, StepWork, float]], profile: StepTimeModel, window: float = SECONDS
) -> dict[int, float]:
    """Of steps (when each began, its work, its seconds): by window, what they took over what the profile says of them
    together. One number: how a step's time depends on its work is still the profile's."""
    took: dict[int, float] = defaultdict(float)
    said: dict[int, float] = defaultdict(float)
    for begun, work, seconds in steps:
        took[int(begun // window)] += seconds
        said[int(begun // window)] += profile.predict(work)
    return {at: took[at] / said[at] for at in took}


class Drifting(Profiled):
    """Steps take what the profile says, times how slow the machine was in the second in which they begin."""

    def __init__(self, profile: StepTimeModel, slow: Mapping[int, float], window: float = SECONDS) -> None:
        super().__init__(profile)
        self._slow, self._window = slow, window

    def end(self, work: StepWork, begun: float) -> float:
        """The profile's time, stretched. A second in which the machine had no step is as fast as the profile."""
        return begun + self._profile.predict(work) * self._slow.get(int(begun // self._window), 1.0)
