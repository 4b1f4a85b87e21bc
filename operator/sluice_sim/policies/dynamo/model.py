"""Dynamo's performance model of an aggregated engine (prefill and decode): iteration time by prompt and KV tokens.

Source: ai-dynamo/dynamo, planner/core/perf_model/agg.py: a linear regression (prompt tokens, cached tokens decoded) →
seconds. Dynamo fits it to each iteration's measurements; this implementation takes the engines' own published fit, with
the cost per sequence spread over the mean context. TTFT is the time of the chunks of the prompts ahead and of the
request's own prompt, each with the decodes in the same iteration. ITL is one iteration with the mean prefill work.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.policies.metrics.increase import Traffic


@dataclass(frozen=True, slots=True)
class Regression:
    """Coefficients in seconds: per iteration, per prompt token, per cached token."""

    base: float
    prompt_token: float
    cached_token: float

    def iteration(self, prompt_tokens: float, cached_tokens: float) -> float:
        """Seconds of one iteration."""
        return self.base + self.prompt_token * prompt_tokens + self.cached_token * cached_tokens


@dataclass(frozen=True, slots=True)
class Limits:
    """The engine's limits: tokens per iteration, sequences, tokens of KV cache."""

    batched_tokens: int
    sequences: int
    kv_tokens: float


def regression(models: Sequence[StepTimeModel], context: float) -> Regression:
    """The mean of the engines' fits, with the cost per sequence spread over `context` tokens."""
    count = len(models)
    return Regression(
        base=math.fsum(model.base for model in models) / count,
        prompt_token=math.fsum(model.prefill_token for model in models) / count,
        cached_token=math.fsum(model.kv_token + model.sequence / max(1.0, context) for model in models) / count,
    )


def ttft(by: Regression, prompt_tokens: float, cached_tokens: float, chunk: int) -> float:
    """Seconds until all `prompt_tokens` (queued and the request's own) are computed in chunks of `chunk` tokens."""
    whole, rest = divmod(max(0.0, prompt_tokens), chunk)
    seconds = whole * by.iteration(chunk, cached_tokens)
    return seconds + (by.iteration(rest, cached_tokens) if rest > 0 else 0.0)


def best_rate(by: Regression, mean: Traffic, limits: Limits, ttft_target: float, itl_target: float) -> float:
    """Requests per second of one engine at the largest batch that meets the ITL and TTFT targets (seconds).

    By Little's law, rate = batch / (output × iteration). If a single request misses the targets, it is the rate at a
    batch of 1."""
    context = mean.prompt + mean.output / 2.0
    uncached = mean.prompt * (1.0 - mean.hit)
    most = min(limits.kv_tokens / max(1.0, context), limits.sequences, limits.batched_tokens - 1)
    # Up to this batch, prefill keeps up with finished requests.
    balanced = mean.output * limits.batched_tokens / (mean.prompt + mean.output)
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
