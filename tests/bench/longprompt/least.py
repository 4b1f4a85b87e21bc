"""The least time in which a step-time model lets a long prompt through beside decoding streams.

Every step may take the target T and no more. So each takes the largest chunk whose predicted time fits, of any size: no
rounding, no correction for slow steps, nothing lost between steps. No scheduler that keeps T can be faster by this model.
"""

import math

from sluice_law.steptime import StepTimeModel, StepWork


def least_seconds(model: StepTimeModel, prompt: int, target: float, sequences: int, kv_tokens: int) -> float:
    """Seconds from the prompt's first chunk to its first token, `sequences` streams with `kv_tokens` cached in all
    decoding beside it; infinite where not even one token of the prompt fits beside them."""
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
