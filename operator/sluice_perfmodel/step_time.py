"""Step-time model: the duration of one engine step as five terms that follow the work of a transformer step.

    T = base + prefill_token·P + prefill_context·Σ(chunk × context) + sequence·S + kv_token·K

`base` is the cost of reading the weights once per step, whatever the batch. `prefill_token` is the linear layers over
prompt tokens, `prefill_context` the quadratic attention of a prompt, `sequence` the cost per decoding sequence
(linears, sampling), `kv_token` the read of cached keys and values. Sarathi-Serve (OSDI'24) and Vidur (MLSys'24) fit the
same terms. Without the context term the model mispredicts a 10,000-token prompt.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

TERMS: Final = ("base", "prefill_token", "prefill_context", "sequence", "kv_token")


class StepWork(NamedTuple):  # a tuple for speed: the engine and the simulator make one per step
    """The work of one step, in counts.

    `prefill_context` is Σ over prompt chunks of chunk × (context before it + half the chunk); the half is the chunk's
    causal triangle.
    """

    prefill_tokens: int = 0
    prefill_context: float = 0.0
    sequences: int = 0  # decoding rows of this step
    kv_tokens: int = 0  # cached tokens that the decoding rows read


@dataclass(frozen=True, slots=True)
class StepTimeModel:
    """Coefficients in seconds per unit, all ≥ 0.

    `steps` is the number of steps that the fit has seen. `error_ratio` is the mean absolute relative error, each step
    predicted before the fit includes it.
    """

    base: float
    prefill_token: float = 0.0
    prefill_context: float = 0.0
    sequence: float = 0.0
    kv_token: float = 0.0
    error_ratio: float = 0.0
    steps: int = 0

    def scaled(self, factor: float) -> "StepTimeModel":
        """The model of an engine whose steps all take `factor` times as long."""
        return replace(
            self,
            base=self.base * factor,
            prefill_token=self.prefill_token * factor,
            prefill_context=self.prefill_context * factor,
            sequence=self.sequence * factor,
            kv_token=self.kv_token * factor,
        )

    def decode_seconds(self, sequences: int, kv_tokens: float) -> float:
        """`predict` of a step that only decodes."""
        return self.base + self.sequence * sequences + self.kv_token * kv_tokens

    def prefill_seconds(self, uncached: float, cached: float = 0.0) -> float:
        """What the prompt of one request adds to its steps: `uncached` tokens after `cached` ones."""
        return self.prefill_token * uncached + self.prefill_context * uncached * (cached + uncached / 2.0)

    def predict(self, work: StepWork) -> float:
        """Predicted duration of a step with this work, seconds."""
        return (
            self.base
            + self.prefill_token * work.prefill_tokens
            + self.prefill_context * work.prefill_context
            + self.sequence * work.sequences
            + self.kv_token * work.kv_tokens
        )


def parse_model(text: str) -> StepTimeModel:
    """Parse a model from "base=0.03,sequence=0.004,…": seconds per unit; omitted terms are 0.

    Raises ValueError with a message that can follow the option's name.
    """
    terms: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in TERMS:
            raise ValueError(f"expected term=seconds with one of {', '.join(TERMS)}, not {part!r}")
        if name in terms:
            raise ValueError(f"{name} is given twice")
        try:
            seconds = float(value)
        except ValueError as error:
            raise ValueError(f"{name} must be seconds, not {value!r}") from error
        if not (math.isfinite(seconds) and seconds >= 0.0):
            raise ValueError(f"{name} must be 0 or more, not {value}")
        terms[name] = seconds
    if terms.get("base", 0.0) <= 0.0:
        raise ValueError("base must be above 0: a step without work still reads the weights")
    return StepTimeModel(
        base=terms["base"],
        prefill_token=terms.get("prefill_token", 0.0),
        prefill_context=terms.get("prefill_context", 0.0),
        sequence=terms.get("sequence", 0.0),
        kv_token=terms.get("kv_token", 0.0),
    )
