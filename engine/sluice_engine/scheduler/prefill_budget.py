"""How many prompt tokens a step may compute: as many as the inter-token targets of its decoding requests allow.

The fitted step-time model predicts the step; beside decoding requests, prompt chunks get the seconds that are left
until the inter-token target (Sarathi-Serve's stall-free batching, with a measured model in place of a constant).
"""

import math
from collections.abc import Collection
from typing import Final

from sluice_engine.control.step_deadline import Deadline
from sluice_engine.control.tail_correction import PERCENTILE_WITH_DEADLINE
from sluice_engine.scheduler.chunking import (
    MINIMUM_CHUNK,
    PROGRESS,
    chunk_context,
    largest_chunk,
    rounded,
    tightest,
)
from sluice_engine.scheduler.load_shedding.deadlines import longest_step
from sluice_engine.scheduler.plan import StepMode
from sluice_engine.scheduler.state import SchedulerState
from sluice_engine.scheduler.step_draft import StepDraft
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.step_time import StepTimeModel, StepWork

ROUNDING: Final = 1e-9  # relative error of sums of seconds


class PrefillBudget:
    """Tokens and predicted seconds that prompt chunks may still use in this step."""

    __slots__ = ("_has_chunk", "_model", "_progress", "_seconds", "_seconds_alone", "_tokens", "alone", "cut", "target")

    def __init__(
        self,
        tokens: int,
        model: StepTimeModel | None,
        decode: StepWork,
        itl_targets: Collection[float],
        itl_default: float,
        tail: float = 1.0,
        tail_alone: float | None = None,
        longest_step: float = math.inf,
    ) -> None:
        """`itl_targets`: seconds between two tokens, of the requests in `decode`.
        `tail`: measured over predicted seconds of slow steps. `tail_alone`: the same for a chunk that is alone in its step
        and whose end can be cut; None: none can. `longest_step`: seconds of any step, so that a request that arrives during
        it is still in time; inf: without decoding requests the step is unbounded."""
        self._tokens = tokens
        fitted = model is not None and model.steps >= PERFMODEL.limit.least_model_steps
        bounded = decode.sequences > 0 or longest_step < math.inf
        self._model = model if bounded and fitted else None
        self._seconds, self._seconds_alone, self._progress = math.inf, -math.inf, 0.0
        self.target = math.inf  # seconds: the bound of a chunk that is alone
        if self._model is not None:
            decode_seconds = self._model.predict(decode)
            self._progress = PROGRESS * decode_seconds
            self._seconds = longest_step / tail - decode_seconds
            if decode.sequences:
                bound = tightest(itl_targets, decode_seconds, itl_default, tail)
                self._seconds = min(bound, longest_step / tail) - decode_seconds
            if tail_alone is not None and decode.sequences:
                bound = tightest(itl_targets, decode_seconds, itl_default, tail_alone)
                bound = min(bound, longest_step / tail_alone)
                self.target, self._seconds_alone = bound * tail_alone, bound - decode_seconds
        self._has_chunk = False
        self.alone = False  # the chunk was sized so that its end is cut where the step would miss `target`
        self.cut = False  # a target, and not the budget of tokens, bounded a chunk

    @property
    def tokens(self) -> int:
        """Tokens left."""
        return self._tokens

    def chunk(self, wanted: int, context: int) -> int:
        """The largest chunk ≤ `wanted` after `context` cached tokens that fits; 0 when the step is full. The first one,
        where it does not complete its prompt, may be one whose end can be cut: then it is the only one."""
        most = min(wanted, self._tokens)
        if self._model is None or most <= 0:
            return max(0, most)
        if not self._has_chunk and self._seconds_alone > 0.0:
            alone = rounded(largest_chunk(self._model, context, self._seconds_alone))
            self.alone = self._least(alone, most, context) <= alone < most
            if self.alone:
                self.cut = True
                return alone
        fits = min(most, largest_chunk(self._model, context, self._seconds))
        if fits < most:
            fits, self.cut = rounded(fits), True
        if self._has_chunk:  # a row with a few tokens of one more prompt costs more than it gains
            return fits if fits >= min(most, MINIMUM_CHUNK) else 0
        return max(fits, self._least(fits, most, context))

    def _least(self, fits: int, most: int, context: int) -> int:
        """Tokens that a prompt computes at least, where `fits` fit."""
        if self._model is None or fits >= min(most, MINIMUM_CHUNK):
            return min(most, MINIMUM_CHUNK)
        least = largest_chunk(self._model, context, self._progress) if fits else MINIMUM_CHUNK
        return min(most, least, MINIMUM_CHUNK)

    def pooling_chunk(self, wanted: int) -> int:
        """All of `wanted`, or 0: a pooling request cannot be chunked, so it waits for a step with room; one beyond any budget
        needs a step without other prompts."""
        return wanted if wanted <= self._tokens or not self._has_chunk else 0

    def spend(self, tokens: int, context: int) -> None:
        """Book a chunk that was handed out."""
        self._tokens -= tokens
        self._has_chunk = True
        if self._model is not None:
            self._seconds -= self._model.prefill_token * tokens
            self._seconds -= self._model.prefill_context * chunk_context(tokens, context)
        if self.alone:
            self._seconds = -math.inf


def prefill_budget(state: SchedulerState, draft: StepDraft) -> PrefillBudget:
    """What the decoding rows of this step, and requests that arrive during it, leave to prompts. Targets are divided by
    the overrun of slow steps, which is smaller for a chunk whose end can be cut."""
    bounds, correction = state.limits.current, state.correction
    return PrefillBudget(
        tokens=max(MINIMUM_CHUNK, bounds.max_batched_tokens - len(draft.rows)),
        model=state.model,
        decode=StepWork(sequences=len(draft.rows), kv_tokens=draft.kv_tokens),
        itl_targets=draft.itl_targets,
        itl_default=bounds.itl_target,
        tail=correction.tail(),
        tail_alone=correction.tail(PERCENTILE_WITH_DEADLINE) if draft.mode is StepMode.BOUNDED else None,
        longest_step=longest_step(state),
    )


def deadline(state: SchedulerState, draft: StepDraft, target: float) -> Deadline | None:
    """The runner's deadline for the target that bounded the only chunk of a BOUNDED step, less the time that such steps
    were measured to take outside of the runner. None where nothing can be cut, and where the chunk is planned to pass
    the target so that its prompt progresses at all."""
    model = state.model
    if model is None:
        return None
    decode_seconds = model.predict(draft.work._replace(prefill_tokens=0, prefill_context=0.0))
    whole = model.predict(draft.work)
    if not decode_seconds < whole <= target * (1 + ROUNDING):
        return None
    # At least half of the chunk's time stays, or no step would measure that the slow period has passed.
    seconds = max(target / state.overshoot.tail(), (decode_seconds + target) / 2)
    return Deadline(seconds, 1.0 - decode_seconds / whole, len(draft.rows[-1].tokens), tuple(draft.filling))
