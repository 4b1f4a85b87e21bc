"""What a draft token really takes, beside what the step-time model's terms say of a prompt's token.

On a busy machine a step may take ten times its usual time, so one measurement says little and a mean is moved by each
stall: medians are compared, of steps with drafts and of steps without.
"""

from collections import deque
from statistics import median

from sluice_law.steptime import StepTimeModel

PLAIN = 32  # steps without drafts that are remembered
DRAFTED = 16  # steps with drafts
TRUST = 3  # measurements that the model's own word counts for


class DraftCost:
    """Feed it every step that decodes, with what the model predicts of its work without drafts."""

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
        """Measured over predicted in the middle one of plain steps."""
        return median([*self._plain, *[1.0] * TRUST])

    def surcharge(self, model: StepTimeModel) -> float:
        """Seconds of a draft token beyond the model's terms; negative where it takes less."""
        if not self._drafted:
            return 0.0
        beyond = [took - model.prefill_token - model.prefill_context * context for took, context in self._drafted]
        return median(beyond + [0.0] * TRUST)
