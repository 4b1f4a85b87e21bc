"""Sizes of prompt chunks: how many tokens fit into given seconds, by the step-time model."""

import math
from collections.abc import Collection
from typing import Final

from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.step_time import StepTimeModel

MINIMUM_CHUNK: Final = PERFMODEL.shadow.least_chunk  # tokens, where decoding alone misses the target
# Where a target leaves less than this share of a decoding step, prompts take the share all the same (MINIMUM_CHUNK at
# most): one client's target, barely above the time of decoding, must not stop all prompts.
PROGRESS: Final = PERFMODEL.shadow.least_share
LONGEST_STEP: Final = PERFMODEL.shadow.longest_step  # of a step with prompt chunks, as a share of the TTFT target


def tightest(targets: Collection[float], decode_seconds: float, default: float, overrun: float = 1.0) -> float:
    """The least target that decoding alone still meets, divided by `overrun`; `default` where it meets none, or no request
    has its own. A target that is missed anyway bounds nothing: otherwise one request with a target of a nanosecond would
    stop all prompts."""
    met = [bound for target in targets if (bound := target / overrun) > decode_seconds]
    return min(met) if met else default / overrun


def rounded(tokens: int) -> int:
    """Down to one of eight sizes per power of two, at most a ninth less, because each new shape costs the runner time.
    Small sizes too: late in a long prompt sixteen tokens may take longer than a target leaves."""
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
