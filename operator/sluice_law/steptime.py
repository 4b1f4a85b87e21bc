"""How long one engine step takes: five terms that follow the work of a transformer step.

    T = base + prefill_token·P + prefill_context·Σ(chunk × context) + sequence·S + kv_token·K

`base` is the weights' own cost (read once per step whatever the batch), `prefill_token` the linear layers over
prompt tokens, `prefill_context` the prompt's own quadratic attention, `sequence` the per-sequence share of a
decode row (linears, sampling), `kv_token` the read of cached keys and values. Sarathi-Serve (OSDI'24) and
Vidur (MLSys'24) fit the same terms; the context term is what keeps a 10,000-token prompt from being mispredicted.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepWork:
    """What one step computes. All counts; `prefill_context` is Σ over prompt chunks of chunk × context before it plus
    half the chunk (its own causal triangle)."""

    prefill_tokens: int = 0
    prefill_context: float = 0.0
    sequences: int = 0  # rows that decode in this step
    kv_tokens: int = 0  # cached tokens that the decoding rows read


@dataclass(frozen=True, slots=True)
class StepTimeModel:
    """Coefficients in seconds per unit, all ≥ 0. `steps` says how many steps the fit has seen, `error_ratio` its
    mean absolute relative error on the steps it predicted before learning from them."""

    base: float
    prefill_token: float = 0.0
    prefill_context: float = 0.0
    sequence: float = 0.0
    kv_token: float = 0.0
    error_ratio: float = 0.0
    steps: int = 0

    def predict(self, work: StepWork) -> float:
        """Seconds that a step of this work takes."""
        return (
            self.base
            + self.prefill_token * work.prefill_tokens
            + self.prefill_context * work.prefill_context
            + self.sequence * work.sequences
            + self.kv_token * work.kv_tokens
        )
