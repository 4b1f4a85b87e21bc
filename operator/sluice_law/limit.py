"""The fast loop: where one engine's concurrency limit belongs, inside the bounds it was given.

Run every second by the engine (and by the simulator) on its own measurements.
"""

from dataclasses import dataclass

from sluice_law.steptime import StepTimeModel


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What the engine measured over the last seconds. Tokens and seconds."""

    running: int
    waiting: int
    mean_context: float  # cached tokens per running sequence; 0 while nothing runs
    prefill_rate: float  # uncached prompt tokens computed per second
    prefill_context_rate: float  # Σ chunk × context per second
    observed_itl: float | None  # p95 of the inter-token times of the last seconds; None without any
    kv_tokens_total: int  # size of the pool
    kv_tokens_held: int  # held by running requests
    growth_per_sequence: float  # tokens that a running sequence is expected still to add


@dataclass(frozen=True, slots=True)
class LimitState:
    """What the fast loop carries from one tick to the next."""

    limit: int
    correction: float = 1.0  # observed / predicted inter-token time, smoothed


@dataclass(frozen=True, slots=True)
class LimitTargets:
    """The operator's side of it: bounds and targets (PATCH /limits), or what the engine was started with."""

    minimum: int
    maximum: int
    itl: float  # seconds
    kv_watermark: float  # share of the pool that running requests may fill


def next_limit(
    state: LimitState, model: StepTimeModel | None, load: EngineLoad, targets: LimitTargets
) -> tuple[LimitState, str]:
    """The next limit and what binds it: "itl", "kv", "bounds" or "cold" (no trusted model yet: the maximum)."""
    return LimitState(limit=max(targets.minimum, targets.maximum)), "cold"
