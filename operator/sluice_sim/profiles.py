"""Hardware as a step-time profile: what one step costs on the engines that are simulated."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from sluice_law.steptime import StepTimeModel, parse_model
from sluice_sim.profile_data import Fit, sageserve, splitwise


@dataclass(frozen=True, slots=True)
class Hardware:
    """One replica's hardware with its model. `kv_tokens` is arithmetic: what 90 % of the memory leaves beside 16-bit
    weights, over the bytes of one token's keys and values, rounded down."""

    words: str
    gpus: int
    kv_tokens: int
    fit: Callable[[], Fit]


@dataclass(frozen=True, slots=True)
class Profile:
    """What is simulated: the costs, where they come from, and where the measurement behind them ends."""

    model: StepTimeModel
    words: str
    gpus: int | None = None  # per replica; None: the user's own numbers say nothing of it
    kv_tokens: int | None = None
    longest_prompt: int | None = None  # that was measured; beyond it prompts grow with the fitted quadratic term
    largest_batch: int | None = None


_LLAMA2_70B: Final = "Llama-2-70B on {} (Splitwise, fitted)"
HARDWARE: Final = {
    "llama31-8b-a100-tp2": Hardware("Llama-3.1-8B on 2 × A100-80GB (SageServe, fitted)", 2, 970_000,
                                    partial(sageserve, 2)),
    "llama31-8b-a100-tp4": Hardware("Llama-3.1-8B on 4 × A100-80GB (SageServe, fitted)", 4, 2_070_000,
                                    partial(sageserve, 4)),
    "llama2-70b-h100-tp4": Hardware(_LLAMA2_70B.format("4 × H100-80GB"), 4, 450_000,
                                    partial(splitwise, "llama2-70b", "h100-80gb", 4)),
    "llama2-70b-h100-tp8": Hardware(_LLAMA2_70B.format("8 × H100-80GB"), 8, 1_330_000,
                                    partial(splitwise, "llama2-70b", "h100-80gb", 8)),
    "llama2-70b-a100-tp4": Hardware(_LLAMA2_70B.format("4 × A100-80GB"), 4, 450_000,
                                    partial(splitwise, "llama2-70b", "a100-80gb", 4)),
    "llama2-70b-a100-tp8": Hardware(_LLAMA2_70B.format("8 × A100-80GB"), 8, 1_330_000,
                                    partial(splitwise, "llama2-70b", "a100-80gb", 8)),
    "bloom-176b-h100-tp8": Hardware("BLOOM-176B on 8 × H100-80GB (Splitwise, fitted)", 8, 55_000,
                                    partial(splitwise, "bloom-176b", "h100-80gb", 8)),
}  # fmt: skip
DEFAULT_NAME: Final = "llama31-8b-a100-tp2"


class BadProfile(ValueError):
    """The profile cannot be read. The message says which part and what was expected."""


def named_profile(name: str) -> Profile:
    """One of HARDWARE, fitted from the bundled measurements. Raises KeyError."""
    hardware = HARDWARE[name]
    fit = hardware.fit()
    return Profile(fit.model, hardware.words, hardware.gpus, hardware.kv_tokens, fit.longest_prompt, fit.largest_batch)


def read_profile(text: str | None) -> Profile:
    """What --profile says: a name, or terms; the default where it is None. Raises BadProfile."""
    if text is None or text in HARDWARE:
        return named_profile(text or DEFAULT_NAME)
    if "=" not in text:
        raise BadProfile(f"--profile: no profile is named {text!r}; there are {', '.join(HARDWARE)}, or give base=…")
    return Profile(parse_profile(text), "given by --profile")


def parse_profile(text: str) -> StepTimeModel:
    """`base=0.03,sequence=0.004,…`: seconds per unit. Raises BadProfile."""
    try:
        return parse_model(text)
    except ValueError as error:
        raise BadProfile(f"--profile: {error}") from error
