"""The machine's slowness second by second, and step times that reproduce it.

Two cores of a shared machine are at times half as fast as a minute before. Near the capacity this dominates the result
of a run; it is no property of the engine, and no profile can contain it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from sluice_perfmodel.step_time import StepTimeModel, StepWork
from sluice_sim.engine.step_times import Profiled

SECONDS = 1.0  # per value: with 4 s windows the prediction was up to 21 % off, with 1 s windows 10 %


def slowness(
    steps: Iterable[tuple[float, StepWork, float]], profile: StepTimeModel, window: float = SECONDS
) -> dict[int, float]:
    """Per window, the measured time of its steps over the time that the profile predicts for them.

    `steps` are (start, work, seconds). A window has one factor; how a step's time depends on its work stays the
    profile's.
    """
    took: dict[int, float] = defaultdict(float)
    said: dict[int, float] = defaultdict(float)
    for begun, work, seconds in steps:
        took[int(begun // window)] += seconds
        said[int(begun // window)] += profile.predict(work)
    return {at: took[at] / said[at] for at in took}


class Drifting(Profiled):
    """Step times of the profile, multiplied by the machine's slowness in the second in which a step starts."""

    def __init__(self, profile: StepTimeModel, slow: Mapping[int, float], window: float = SECONDS) -> None:
        super().__init__(profile)
        self._slow, self._window = slow, window

    def end(self, work: StepWork, begun: float) -> float:
        """The profile's time, scaled. A second without steps has factor 1."""
        return begun + self._profile.predict(work) * self._slow.get(int(begun // self._window), 1.0)
