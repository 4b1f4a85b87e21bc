"""Every modelling constant of the performance model, in one frozen object: `PERFMODEL`.

Each field states its unit, its source or the measurement behind it, and what happens when it is halved and doubled.
"Not measured" means that no experiment varied it. Tracks T1 to T5 and the measurements are in `operator/LOG.md`.
Constants of a numerical method, which change only a precision, stay beside the method.
"""

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class ArrivalSettings:
    """Arrival statistics and their forecast."""

    usual_dispersion: float = 1.0
    """Index of dispersion of the counts, until measured. Source: 1 is a Poisson process. Halved, doubled: not
    measured."""

    usual_volatility: float = 0.013
    """Volatility of the level per √second, until measured, as a share of the level. Basis: 10 % in a minute. Halved,
    doubled: not measured."""

    dispersion_bounds: tuple[float, float] = (0.25, 50.0)
    """Least and largest index of dispersion. Basis: beyond them the estimate is an error. Halved, doubled: not
    measured."""

    least_volatility: float = 1e-3
    """Least volatility per √second: 6 % in an hour. Basis: no load is assumed to be constant. Halved, doubled: not
    measured."""

    most_volatility: float = 0.2
    """Largest volatility per √second: the level doubles in 30 s. Halved, doubled: not measured."""

    prior_slots: float = 12.0
    """Weight of the prior estimate, in slots. Less weight for the volatility (by independent pieces): T1 needs 9 %
    less, and T2, T3 and T4 need 3 to 4 % more. Doubled: not measured."""

    prior_most: float = 5.0
    """Largest weight of an earlier estimate, in multiples of the prior's. Halved, doubled: not measured."""

    level_slots: int = 60
    """Slots used to estimate the level of the load. Basis: older ones have no weight left. Halved, doubled: not
    measured."""

    least_trend_slots: int = 12
    """Fewest slots used to detect a trend. Basis: fewer cannot tell one from noise. Halved, doubled: not measured."""

    trend_horizons: float = 4.0
    """Horizons of the past in which a trend is looked for. Halved, doubled: not measured."""


@dataclass(frozen=True, slots=True)
class CapacitySettings:
    """Queueing and capacity of one replica."""

    service_variance: float = 1.0
    """Squared coefficient of variation of output lengths. Measured: 0.8 to 1.2 on the Azure 2023 trace. Halved,
    doubled: not measured."""

    prompt_variance: float = 2.0
    """Squared coefficient of variation of prompt work. Measured: 1.3 (Azure 2023) to 2.5 (ServeGen). Halved, doubled:
    not measured."""

    least_spread: float = 0.1
    """Least spread z of the work in the queue. Basis: even with a perfect split of a steady stream, output lengths stay
    random. Halved, doubled: not measured."""

    least_prefill_share: float = 0.05
    """Least share of a second for prompts, however many sequences decode. Halved, doubled: not measured."""

    most_utilisation: float = 0.95
    """Largest planned utilisation without load shedding. Basis: beyond it 1 % more load changes the predicted wait by
    its own size, and no load estimate is that accurate. Halved: not measured."""

    least_utilisation: float = 0.05
    """Utilisation of a nearly idle replica. Basis: a request late at this load is late by its own length, and more
    replicas do not help. Halved, doubled: not measured."""


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

    arrivals: ArrivalSettings = field(default_factory=ArrivalSettings)
    capacity: CapacitySettings = field(default_factory=CapacitySettings)
    limit: LimitSettings = field(default_factory=LimitSettings)
    shadow: ShadowSettings = field(default_factory=ShadowSettings)


PERFMODEL: Final = PerformanceModelSettings()
