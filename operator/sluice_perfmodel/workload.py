"""The mean request and its cost: seconds per token with n running requests, and the resulting requests per second.

A request of u uncached prompt tokens (after h cached ones) and o output tokens, decoding among n sequences of mean
context L, has by the model of `step_time` the costs

    S(n) = base + sequence·n + kv_token·n·L + prefill·n/o        seconds per token
    prefill = prefill_token·u + prefill_context·u·(h + u/2)      seconds per request
    μ(n) = n / (o·S(n))                                          requests per second (Little's law)

Each of n sequences is replaced by a new prompt every o steps, hence prefill·n/o (the co-located form of WVA's queueing
model and of Vidur, MLSys'24).
"""

import math
from typing import NamedTuple

from sluice_perfmodel.step_time import StepTimeModel


class Work(NamedTuple):  # a tuple for speed: each waiting request makes one
    """The mean request. Tokens."""

    output: float
    uncached: float
    cached: float = 0.0

    @property
    def context(self) -> float:
        """Mean KV tokens of a request while it decodes: the whole prompt and half of the output."""
        return self.uncached + self.cached + self.output / 2.0


def prefill_seconds(model: StepTimeModel, work: Work) -> float:
    """Prefill time of one request, seconds."""
    return model.prefill_seconds(work.uncached, work.cached)


def token_seconds(model: StepTimeModel, work: Work, concurrency: float) -> float:
    """S(n): mean seconds per token of each of n sequences, including the prefill of the requests that replace them."""
    per_sequence = model.sequence + model.kv_token * work.context + prefill_seconds(model, work) / max(work.output, 1.0)
    return model.base + per_sequence * concurrency


def throughput(model: StepTimeModel, work: Work, concurrency: float) -> float:
    """μ(n): requests per second with n running sequences; inf where the model costs no time."""
    seconds = max(work.output, 1.0) * token_seconds(model, work, concurrency)
    return concurrency / seconds if seconds > 0 else math.inf
