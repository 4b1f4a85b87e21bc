"""Dynamo's performance model of an engine that prefills and decodes: iteration time over prompt and cached tokens.

Source: ai-dynamo/dynamo, planner/core/perf_model/agg.py: a linear regression (prompt tokens, cached tokens decoded) →
seconds. There it is fitted to each iteration's measurements; here it is the engines' own published fit, with the cost
per sequence spread over the mean context. TTFT is the chunks of the prompts ahead and one's own, each with the
decodes that ride along; ITL one iteration with the mean prompt work.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sluice_law.steptime import StepTimeModel
from sluice_sim.laws.growth import Traffic


@dataclass(frozen=True, slots=True)
class Regression:
    """Seconds: per iteration, per prompt token, per cached token."""

    base: float
    prompt_token: float
    cached_token: float

    def iteration(self, prompt_tokens: float, cached_tokens: float) -> float:
        """Seconds of one iteration."""
        return self.base + self.prompt_token * prompt_tokens + self.cached_token * cached_tokens


@dataclass(frozen=True, slots=True)
class Limits:
    """The engine's: tokens per iteration, sequences, tokens of KV cache."""

    batched_tokens: int
    sequences: int
    kv_tokens: float


def regression(models: Sequence[StepTimeModel], context: float) -> Regression:
    """The mean of the engines' fits."""
    count = len(models)
    return Regression(
        base=math.fsum(model.base for model in models) / count,
        prompt_token=math.fsum(model.prefill_token for model in models) / count,
        cached_token=math.fsum(model.kv_token + model.sequence / max(1.0, context) for model in models) / count,
    )


def ttft(by: Regression, prompt_tokens: float, cached_tokens: float, chunk: int) -> float:
    """Seconds until all of `prompt_tokens` (those ahead and one's own) are computed in chunks."""
    whole, rest = divmod(max(0.0, prompt_tokens), chunk)
    seconds = whole * by.iteration(chunk, cached_tokens)
    return seconds + (by.iteration(rest, cached_tokens) if rest > 0 else 0.0)


def best_rate(by: Regression, mean: Traffic, limits: Limits, ttft_target: float, itl_target: float) -> float:
    """Requests per second of one engine: the largest batch whose iteration meets the ITL target and whose prompts
    meet the TTFT target, by Little's law batch / (output × iteration). Where one request alone misses, its rate."""
    context = mean.prompt + mean.output / 2.0
    uncached = mean.prompt * (1.0 - mean.hit)
    most = min(limits.kv_tokens / max(1.0, context), limits.sequences, limits.batched_tokens - 1)
    balanced = mean.output * limits.batched_tokens / (mean.prompt + mean.output)  # prompts keep up with what ends
    best = 0.0
    for batch in range(1, max(1, math.floor(min(most, balanced))) + 1):
        prompts = min(batch * uncached / max(1.0, mean.output), limits.batched_tokens)
        seconds = by.iteration(prompts, batch * context)
        first = ttft(by, prompts + uncached, batch * context, limits.batched_tokens)
        if (seconds > itl_target or first > ttft_target) and batch > 1:
            break
        best = batch / (mean.output * seconds)
        if seconds > itl_target or first > ttft_target:
            break
    return best
