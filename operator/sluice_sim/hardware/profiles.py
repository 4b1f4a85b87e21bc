"""Step-time profiles by name: the cost of one step on the hardware of a simulated engine."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from sluice_perfmodel.profile_file import parse_profile_file
from sluice_perfmodel.step_time import StepTimeModel, parse_model
from sluice_sim.hardware.measurements import Fit, sageserve, splitwise


@dataclass(frozen=True, slots=True)
class Hardware:
    """The hardware of one replica with its model.

    `kv_tokens` is computed, not measured: 90 % of the GPU memory less the 16-bit weights, divided by the bytes of one
    token's keys and values, rounded down."""

    words: str
    gpus: int
    kv_tokens: int
    fit: Callable[[], Fit]


@dataclass(frozen=True, slots=True)
class Profile:
    """The step-time model of a simulation, its origin in words, and the range of the measurement behind it."""

    model: StepTimeModel
    words: str
    gpus: int | None = None  # per replica; None for terms given by the user
    kv_tokens: int | None = None
    longest_prompt: int | None = None  # measured, tokens; beyond it the fitted quadratic term extrapolates
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
    """The profile cannot be read. The message names the faulty part and the expected value."""


def named_profile(name: str) -> Profile:
    """The profile of a name in HARDWARE, fitted from the bundled measurements. Raises KeyError."""
    hardware = HARDWARE[name]
    fit = hardware.fit()
    return Profile(fit.model, hardware.words, hardware.gpus, hardware.kv_tokens, fit.longest_prompt, fit.largest_batch)


def read_profile(text: str | None) -> Profile:
    """Parse --profile: a name, a file or explicit terms; None gives the default. Raises BadProfile."""
    if text is None or text in HARDWARE:
        return named_profile(text or DEFAULT_NAME)
    if Path(text).exists():
        return _read_file(Path(text))
    if "=" not in text:
        raise BadProfile(
            f"--profile: {text!r} is neither a file of `sluice bench URL --profile-out FILE` nor one of "
            f"{', '.join(HARDWARE)}, nor terms such as base=0.03,sequence=0.004"
        )
    return Profile(parse_profile(text), "given by --profile")


def _read_file(path: Path) -> Profile:
    try:
        found = parse_profile_file(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadProfile(f"--profile: {path} cannot be read: {error}") from error
    except ValueError as error:
        raise BadProfile(f"--profile: {path} {error}") from error
    words = f"{found.words} (mean error {found.model.error_ratio:.0%})"
    return Profile(found.model, words, kv_tokens=found.kv_tokens, longest_prompt=found.longest_prompt)


def parse_profile(text: str) -> StepTimeModel:
    """Parse explicit terms `base=0.03,sequence=0.004,…` in seconds per unit. Raises BadProfile."""
    try:
        return parse_model(text)
    except ValueError as error:
        raise BadProfile(f"--profile: {error}") from error
