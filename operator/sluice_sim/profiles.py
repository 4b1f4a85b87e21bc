"""Hardware as a step-time profile: what one step costs on the engines that are simulated."""

import math
from typing import Final

from sluice.contract import STEP_MODEL_TERMS
from sluice_law.steptime import StepTimeModel

# Llama-3.1-8B on two A100-80GB (tensor parallel 2). base and prefill_token: SageServe's measurements (MIT licence,
# shashwatj07/SageServe @ 0b95ca2d, Llama-3.1-8B TP2). It measured batch 1 only, so the others are arithmetic:
# kv_token = 131,072 bytes over 80 % of 2 × 2.0 TB/s, sequence = 16 GFLOP over 50 % of 2 × 312 TFLOP/s.
DEFAULT: Final = StepTimeModel(base=0.0085, prefill_token=5.7e-5, sequence=5.1e-5, kv_token=4.1e-8)
DEFAULT_NAME: Final = "Llama-3.1-8B on 2 × A100-80GB (SageServe; batch terms by arithmetic)"
DEFAULT_KV_TOKENS: Final = 900_000  # 0.9 × 160 GB − 16 GB of weights, over 131,072 bytes per token, rounded down


class BadProfile(ValueError):
    """The profile cannot be read. The message says which part and what was expected."""


def parse_profile(text: str) -> StepTimeModel:
    """`base=0.03,sequence=0.004,…`: seconds per unit of the contract's terms. Raises BadProfile."""
    terms: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in STEP_MODEL_TERMS:
            raise BadProfile(
                f"--profile: expected term=seconds with one of {', '.join(STEP_MODEL_TERMS)}, not {part!r}"
            )
        if name in terms:
            raise BadProfile(f"--profile: {name} is given twice")
        try:
            seconds = float(value)
        except ValueError as error:
            raise BadProfile(f"--profile: {name} must be seconds, not {value!r}") from error
        if not (math.isfinite(seconds) and seconds >= 0):
            raise BadProfile(f"--profile: {name} must be 0 or more, not {value}")
        terms[name] = seconds
    if terms.get("base", 0.0) <= 0:
        raise BadProfile("--profile: base must be above 0: a step without work still reads the weights")
    return StepTimeModel(
        base=terms["base"],
        prefill_token=terms.get("prefill_token", 0.0),
        prefill_context=terms.get("prefill_context", 0.0),
        sequence=terms.get("sequence", 0.0),
        kv_token=terms.get("kv_token", 0.0),
    )
