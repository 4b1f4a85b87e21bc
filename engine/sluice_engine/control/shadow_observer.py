"""Feeds an engine's arrivals to its shadow queues, with what is known of its requests at that moment."""

from sluice_engine.control.smoothing import smoothed
from sluice_engine.limits import Limits
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.shadow_queues import EngineLimits, ShadowQueues, shadow_engine
from sluice_perfmodel.step_time import StepTimeModel
from sluice_perfmodel.workload import Work, prefill_seconds


def shadow_limits(bounds: Limits, kv_tokens: int, sequences: int) -> EngineLimits:
    """The limits of an engine with a pool of `kv_tokens` that runs at most `sequences` requests at once."""
    longest = PERFMODEL.shadow.longest_step * bounds.ttft_target
    return EngineLimits(bounds.itl_target, bounds.ttft_target, bounds.max_batched_tokens, kv_tokens, sequences, longest)


class ShadowObserver:
    """The shadow queues of one engine, and the mean context that its decoding requests were seen with, in tokens.

    The context is measured, not computed from the mean request: long outputs are over-represented among those running.
    """

    def __init__(self) -> None:
        self.queues = ShadowQueues()
        self._context: float | None = None

    def arrive(
        self, now: float, work: Work, limits: EngineLimits, model: StepTimeModel | None, context: float | None
    ) -> None:
        """A request arrives at `now` (s) with the prompt of `work`, whose output is the mean of finished requests.

        `model` is None while no fitted one or no finished request is known: the request is then only counted.
        `context` is the mean of the requests that decode now, in tokens; None where none does."""
        if context is not None:
            self._context = smoothed(self._context, context)
        if model is None:
            self.queues.arrive_unjudged()
            return
        engine = shadow_engine(model, self._context or work.context, work.output, limits)
        self.queues.arrive(now, prefill_seconds(model, work), engine)
