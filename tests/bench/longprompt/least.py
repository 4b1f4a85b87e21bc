"""The least time, by a step-time model, in which a long prompt can be prefilled among decoding streams.

Every step may take the target T and no more, so each step takes the largest chunk whose predicted time fits, without
rounding, correction for slow steps, or loss between steps. By this model no scheduler that keeps T can be faster.
"""

import math

from sluice_perfmodel.step_time import StepTimeModel, StepWork


def least_seconds(model: StepTimeModel, prompt: int, target: float, sequences: int, kv_tokens: int) -> float:
    """Seconds from the prompt's first chunk to its first token, with `sequences` decoding streams.

    `kv_tokens` is the number of cached tokens of all streams. Infinite if not even one prompt token fits into a step.
    """
    computed, seconds = 0, 0.0
    while computed < prompt:
        beside = StepWork(sequences=sequences, kv_tokens=kv_tokens)
        chunk = min(prompt - computed, _largest(model, target - model.predict(beside), computed))
        if chunk < 1:
            return math.inf
        seconds += model.predict(
            StepWork(chunk, chunk * (computed + chunk / 2), sequences=sequences, kv_tokens=kv_tokens)
        )
        computed += chunk
        kv_tokens += sequences
    return seconds


def _largest(model: StepTimeModel, seconds: float, computed: int) -> int:
    """Largest n with p·n + e·n·(computed + n/2) ≤ seconds: the positive root of the quadratic."""
    linear, half = model.prefill_token + model.prefill_context * computed, model.prefill_context / 2
    if seconds <= 0:
        return 0
    if half <= 0:
        return int(seconds / linear) if linear > 0 else 1 << 30
    return int((math.sqrt(linear * linear + 4 * half * seconds) - linear) / (2 * half))
