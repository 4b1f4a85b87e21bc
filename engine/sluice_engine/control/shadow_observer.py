"""Feeds an engine's arrivals to its shadow queues, with what is known of its requests at that moment."""

import math
from typing import Final, NamedTuple

from sluice_engine.control.smoothing import smoothed
from sluice_engine.limits import Limits
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.shadow_queues import EngineLimits, ShadowQueues, shadow_engine
from sluice_perfmodel.step_time import StepTimeModel
from sluice_perfmodel.workload import Work, prefill_seconds

_LEAST_FINISHED: Final = 0.5  # requests: after a long pause the sums have decayed to nothing


def shadow_limits(bounds: Limits, kv_tokens: int, sequences: int) -> EngineLimits:
    """The limits of an engine with a pool of `kv_tokens` that runs at most `sequences` requests at once."""
    longest = PERFMODEL.shadow.longest_step * bounds.ttft_target
    return EngineLimits(bounds.itl_target, bounds.ttft_target, bounds.max_batched_tokens, kv_tokens, sequences, longest)


class DecodeProgress(NamedTuple):
    """An engine's decoding: output tokens and finished requests since its start, and the mean context of the requests
    that decode now (tokens; None where none does)."""

    generated: float
    finished: float
    context: float | None


class ShadowObserver:
    """The shadow queues of one engine, and the means that they assume, both measured on running requests.

    The context is not that of the mean request: long outputs are over-represented among those running. The output is
    tokens generated per request that ended, running ones included: the estimator of an exponential lifetime under
    censoring. The mean of finished requests would be too short until the first long ones have ended.
    """

    def __init__(self) -> None:
        self.queues = ShadowQueues()
        self._context: float | None = None
        self._generated = self._finished = 0.0  # decaying sums
        self._seen = DecodeProgress(0.0, 0.0, None)
        self._at = 0.0

    def arrive(
        self, now: float, prompt: Work, limits: EngineLimits, model: StepTimeModel | None, progress: DecodeProgress
    ) -> None:
        """A request with this prompt arrives at `now` (s). `model` is None while the step times are not known: the request
        is then only counted, as it is while no request has finished."""
        keep = math.exp(-max(0.0, now - self._at) / PERFMODEL.shadow.output_seconds)
        self._generated = keep * self._generated + progress.generated - self._seen.generated
        self._finished = keep * self._finished + progress.finished - self._seen.finished
        self._seen, self._at = progress, max(self._at, now)
        if progress.context is not None:
            self._context = smoothed(self._context, progress.context)
        if model is None or progress.finished == 0.0:
            self.queues.arrive_unjudged()
            return
        output = self._generated / max(self._finished, _LEAST_FINISHED)
        engine = shadow_engine(model, self._context or prompt.context, output, limits)
        self.queues.arrive(now, prefill_seconds(model, prompt), engine)
