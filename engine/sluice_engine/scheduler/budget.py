"""How many prompt tokens a step may compute: as many as the streams beside it can bear.

The fitted step-time model predicts the step; while anybody decodes, prompt chunks get the seconds that are left
until the inter-token target (Sarathi-Serve's stall-free batching, with a measured model in place of a constant).
"""

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from sluice_engine.deadline import Deadline
from sluice_engine.scheduler.correction import GIVING_UP
from sluice_law.limit import TRUSTED_STEPS
from sluice_law.steptime import StepTimeModel, StepWork

if TYPE_CHECKING:
    from sluice_engine.scheduler.planner import StepPlanner
    from sluice_engine.scheduler.scheduler import Scheduler

MINIMUM_CHUNK = 16  # where decoding alone misses the target: prefill always progresses, whatever the model says
# Where a target leaves less than this share of a decoding step, prompts take the share all the same (MINIMUM_CHUNK at
# most): one client's target, a hair above what decoding takes, must not stop everybody's.
PROGRESS = 0.1
EXACT = 1e-9  # of rounding in sums of seconds


class PrefillBudget:
    """Tokens and predicted seconds that prompt chunks may still use in this step."""

    __slots__ = ("_given", "_loose", "_model", "_progress", "_seconds", "_tokens", "alone", "cut", "target")

    def __init__(
        self,
        tokens: int,
        model: StepTimeModel | None,
        decode: StepWork,
        itl_targets: Collection[float],
        itl_default: float,
        tail: float = 1.0,
        loose: float | None = None,
    ) -> None:
        """`itl_targets`: seconds between two tokens that those in `decode` expect; without decodes the step is free.
        `tail`: by how much slow steps overrun their prediction. `loose`: the same for a chunk that is alone in its step
        and whose end can be given up; None: none can."""
        self._tokens = tokens
        self._model = model if decode.sequences and model is not None and model.steps >= TRUSTED_STEPS else None
        self._seconds, self._loose, self._progress = math.inf, -math.inf, 0.0
        self.target = math.inf  # seconds: what binds a chunk that is alone
        if self._model is not None:
            beside = self._model.predict(decode)
            self._progress = PROGRESS * beside
            self._seconds = tightest(itl_targets, beside, itl_default, tail) - beside
            if loose is not None:
                bound = tightest(itl_targets, beside, itl_default, loose)
                self.target, self._loose = bound * loose, bound - beside
        self._given = False
        self.alone = False  # whether the chunk was planned to give up its end if need be, for `target`
        self.cut = False  # whether a target, and not the budget of tokens, bounded a chunk

    @property
    def tokens(self) -> int:
        """Tokens left."""
        return self._tokens

    def chunk(self, wanted: int, context: int) -> int:
        """The largest chunk ≤ `wanted` after `context` cached tokens that fits; 0 when the step is full. The first one, where
        its prompt goes on after it, may be one that gives up its end in a slow step: then it is the only one."""
        most = min(wanted, self._tokens)
        if self._model is None or most <= 0:
            return max(0, most)
        if not self._given and self._loose > 0.0:
            alone = rounded(largest_chunk(self._model, context, self._loose))
            self.alone = self._progress_of(alone, most, context) <= alone < most
            if self.alone:
                self.cut = True
                return alone
        fits = min(most, largest_chunk(self._model, context, self._seconds))
        if fits < most:
            fits, self.cut = rounded(fits), True
        if self._given:  # a few tokens of one more prompt are not worth their row
            return fits if fits >= min(most, MINIMUM_CHUNK) else 0
        return max(fits, self._progress_of(fits, most, context))

    def _progress_of(self, fits: int, most: int, context: int) -> int:
        """Tokens that a prompt computes at least, where `fits` fit."""
        if self._model is None or fits >= min(most, MINIMUM_CHUNK):
            return min(most, MINIMUM_CHUNK)
        least = largest_chunk(self._model, context, self._progress) if fits else MINIMUM_CHUNK
        return min(most, least, MINIMUM_CHUNK)

    def whole(self, wanted: int) -> int:
        """All of `wanted`, or 0: what cannot be cut waits for a step with room; one beyond any budget has a step of
        which nothing was given away yet."""
        return wanted if wanted <= self._tokens or not self._given else 0

    def spend(self, tokens: int, context: int) -> None:
        """Book a chunk that was handed out."""
        self._tokens -= tokens
        self._given = True
        if self._model is not None:
            self._seconds -= self._model.prefill_token * tokens
            self._seconds -= self._model.prefill_context * chunk_context(tokens, context)
        if self.alone:
            self._seconds = -math.inf


def prefill_budget(scheduler: "Scheduler", step: "StepPlanner") -> PrefillBudget:
    """What the decodes of this step leave to prompts. Targets are made tighter by what steps overrun their prediction
    at the tail, less so for a chunk that gives way."""
    bounds, correction = scheduler.limits.bounds, scheduler.correction
    gives_up = scheduler.config.gives_up and not scheduler.speculation.open(
        scheduler.steps + 1
    )  # drafts take what is left
    return PrefillBudget(
        tokens=max(MINIMUM_CHUNK, bounds.max_batched_tokens - len(step.rows)),
        model=scheduler.model,
        decode=StepWork(sequences=len(step.rows), kv_tokens=step.kv_tokens),
        itl_targets=step.itl_targets,
        itl_default=bounds.itl_target,
        tail=correction.tail(),
        loose=correction.tail(GIVING_UP) if gives_up else None,
    )


def deadline(scheduler: "Scheduler", step: "StepPlanner", target: float) -> Deadline | None:
    """For the runner to keep the target that bounded the only chunk of `step`, by giving up the chunk's end. The time is
    shorter by what such steps were found to take outside of the runner's hands. None where it cannot give up anything,
    and where the chunk was to pass the target, so that its prompt gets on at all."""
    model = scheduler.model
    if model is None or not scheduler.config.gives_up:
        return None
    beside, whole = model.predict(step.work._replace(prefill_tokens=0, prefill_context=0.0)), model.predict(step.work)
    if not beside < whole <= target * (1 + EXACT):
        return None
    # After a bad spell there is still something to give up, or nobody would learn that it has passed.
    seconds = max(target / scheduler.overshoot.tail(), (beside + target) / 2)
    return Deadline(seconds, 1.0 - beside / whole, len(step.rows[-1].tokens), tuple(step.filling))


def tightest(targets: Collection[float], decode_seconds: float, default: float, overrun: float = 1.0) -> float:
    """The least target that decoding alone still meets; `default` where it meets none, or nobody has one of its own; each
    by so much shorter as steps overrun it. One that is lost already holds nobody back: a request could ask for a
    nanosecond and stop everybody's prompts."""
    met = [bound for target in targets if (bound := target / overrun) > decode_seconds]
    return min(met) if met else default / overrun


def rounded(tokens: int) -> int:
    """Down to one of a few sizes, because new shapes cost the runner: eight to each power of two, which gives away at
    most a ninth. Small ones too: late in a long prompt sixteen tokens alone may take longer than a target leaves."""
    return tokens - tokens % (1 << max(0, tokens.bit_length() - 4))


def chunk_context(tokens: int, context: int) -> float:
    """The chunk's share of `StepWork.prefill_context`: what it attends to, half of itself included."""
    return tokens * (context + tokens / 2)


def largest_chunk(model: StepTimeModel, context: int, seconds: float) -> int:
    """Largest n with p·n + e·n·(context + n/2) ≤ seconds: the positive root of a quadratic."""
    if seconds <= 0:
        return 0
    linear = model.prefill_token + model.prefill_context * context
    half = model.prefill_context / 2
    if half <= 0:
        return int(seconds / linear) if linear > 0 else 1 << 30
    return int((math.sqrt(linear * linear + 4 * half * seconds) - linear) / (2 * half))
