"""Every modelling constant of the performance model, in one frozen object: `PERFMODEL`.

Each field states its unit, its source or the measurement behind it, and what happens when it is halved and doubled.
"Not measured" means that no experiment varied it. Tracks T1 to T5 and the measurements are in `operator/LOG.md`.
Constants of a numerical method, which change only a precision, stay beside the method.
"""

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """The concurrency limit: the engine's fast loop, one period per second."""

    least_model_steps: int = 50
    """Fewest steps behind a usable step-time model. Basis: ten per coefficient, five coefficients. Halved, doubled: not
    measured."""

    margin: float = 1.15
    """Room between the mean inter-token time and its target, near the target. Basis: S(n) is a mean, and the requests'
    own means scatter by about this much. At 1.05 in the plan T3 falls to 98.4 %. Doubled: not measured."""

    most_margin: float = 1.5
    """Largest such room. Basis: a p95 made by prompt chunks does not fall with n, so it may cost a third of the target.
    Halved, doubled: not measured."""

    no_margin_below: float = 0.5
    """Mean over target up to which no room is kept. Basis: scatter cannot reach the target from there. Halved, doubled:
    not measured."""

    correction_bounds: tuple[float, float] = (0.5, 3.0)
    """Least and largest correction of the model. Basis: a model further off than this is wrong and is not corrected.
    Halved, doubled: not measured."""

    smoothing: float = 0.3
    """Weight of the newest period in a smoothed value. Basis: one outlier moves it by a third, three in a row by two
    thirds. Halved, doubled: not measured."""

    slowness_smoothing: float = 1.0 / 120.0
    """The same for the published slowness. Basis: two minutes average out the mix of prefill and decode. Halved,
    doubled: not measured."""

    slowness_noise: float = 0.1
    """Slowness up to which the published model is not slowed. Measured: an exact model moves by up to 0.08 on T1, T2 and
    T4 (one minute of T3: 0.14). Halved, doubled: not measured."""

    rise: float = 0.1
    """Largest rise of the limit per period, as a share. Basis: doubling takes seven periods, about one request's
    length. Halved, doubled: not measured."""

    peak_sigmas: float = 2.0
    """Standard deviations of KV memory that are kept free. Basis: the pool then suffices 97 % of the time, and the
    scheduler's own forecast covers the rest. Halved, doubled: not measured."""

    most_prefill_share: float = 0.95
    """Largest share of a second that prompts are taken to need. Halved, doubled: not measured."""


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    """How shadow queues, and the scheduler that they describe, treat long prompts."""

    longest_step: float = 0.25
    """Longest step with prompt chunks, as a share of the TTFT target: a request that arrives meanwhile waits for its
    end, and then for the step with its own prompt. It binds on processors only. Halved, doubled: not measured."""

    least_chunk: int = 16
    """Prompt tokens that a step computes at least, where decoding alone misses its target: prefill always progresses.
    Halved, doubled: not measured."""

    least_share: float = 0.1
    """Share of a decoding step that prompts get at least (`least_chunk` at most). Basis: a client's target barely above
    the time of decoding must not stop all prompts. Halved, doubled: not measured."""

    output_seconds: float = 120.0
    """Time constant, in seconds, of the mean output. Basis: lengths change slower than rates, and the mean of a heavy
    tail needs the samples. Halved, doubled: not measured."""

    yield_seconds: float = 20.0
    """Seconds after its deadline for which a running prompt yields to requests that can be in time; then it takes its
    place in the order again, so that sustained load cannot let it hold its memory for ever. 2 s: DeepSeek-R1 × 0.1 on
    two replicas 94.9 instead of 96.0 %. 60 s: 96.0 %."""


@dataclass(frozen=True, slots=True)
class PerformanceModelSettings:
    """The constants of the performance model, by the modules that read them."""

    limit: LimitSettings = field(default_factory=LimitSettings)
    shadow: ShadowSettings = field(default_factory=ShadowSettings)


PERFMODEL: Final = PerformanceModelSettings()
