"""The measured cost of a draft token beyond the step-time model's prediction for a prompt token.

On a busy machine a step may take ten times its usual time, and each such stall moves a mean: so medians are compared, of
steps with drafts and of steps without.
"""

from collections import deque
from statistics import median

from sluice_perfmodel.step_time import StepTimeModel

PLAIN = 32  # steps without drafts that are kept
DRAFTED = 16  # steps with drafts
PRIOR = 3  # weight of the model's prediction, in measurements


class DraftCost:
    """Observes every decoding step, with the model's prediction for its work without drafts."""

    def __init__(self) -> None:
        self._plain: deque[float] = deque(maxlen=PLAIN)  # measured / predicted
        self._drafted: deque[tuple[float, float]] = deque(maxlen=DRAFTED)  # seconds of one draft token, its context

    def plain_step(self, seconds: float, predicted: float) -> None:
        """A step without drafts."""
        if predicted > 0.0:
            self._plain.append(seconds / predicted)

    def draft_step(self, drafts: int, context: float, seconds: float, predicted: float) -> None:
        """A step with so many draft tokens, `context` in all as in `StepWork.prefill_context`."""
        self._drafted.append(((seconds - self.level() * predicted) / drafts, context / drafts))

    def level(self) -> float:
        """Measured over predicted seconds, the median of plain steps."""
        return median([*self._plain, *[1.0] * PRIOR])

    def surcharge(self, model: StepTimeModel) -> float:
        """Seconds of a draft token beyond the model's terms; negative where it takes less."""
        if not self._drafted:
            return 0.0
        beyond = [took - model.prefill_token - model.prefill_context * context for took, context in self._drafted]
        return median(beyond + [0.0] * PRIOR)
