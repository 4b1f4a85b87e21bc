"""What one replica holds: the rate at which it meets the SLO, and which promise breaks first beyond it.

A request of u uncached prompt tokens (behind h cached ones) and o output tokens, decoding among n sequences of mean
context L, costs the step-time model of `steptime`:

    S(n) = base + sequence·n + kv_token·n·L + prefill·n/o        seconds per token
    prefill = prefill_token·u + prefill_context·u·(h + u/2)      seconds per request
    μ(n) = n / (o·S(n))                                          requests per second (Little's law)

Each of n sequences brings a prompt every o steps, hence prefill·n/o (the co-located form of WVA's queueing model and
of Vidur, MLSys'24). S is linear in n, so the largest n that an inter-token target allows is closed-form.
Time to first token is a wait in an n-server queue (Sakasegawa's approximation with the Allen–Cunneen variance term,
as in Whitt, "Approximating the GI/G/m queue", 1993) plus the prompt's own work.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

from sluice_law.steptime import StepTimeModel

Binding = Literal["InterTokenLatency", "KVOccupancy", "TimeToFirstToken", "ConcurrencyLimit"]

# Beyond this the predicted wait moves by its own size per percent of load: no estimate of the load is that good.
MAX_UTILISATION: Final = 0.95
SERVICE_VARIANCE: Final = 1.0  # squared coefficient of variation of output lengths: 0.8–1.2 on the Azure 2023 trace


@dataclass(frozen=True, slots=True)
class Work:
    """The mean request. Tokens."""

    output: float
    uncached: float
    cached: float = 0.0

    @property
    def context(self) -> float:
        """Mean tokens in the cache while it decodes: the whole prompt and half of its answer."""
        return self.uncached + self.cached + self.output / 2.0


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica's means and the bounds it is held to. Tokens, seconds."""

    model: StepTimeModel
    kv_tokens: float
    kv_share: float  # share of the pool that running requests may fill, 0..1
    max_concurrency: int
    min_concurrency: int = 1  # the limit never falls below, whatever the inter-token target


@dataclass(frozen=True, slots=True)
class Targets:
    """The promise: times in seconds, and the share of requests that must meet both."""

    ttft: float
    itl: float
    attainment: float = 0.99


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica holds. `rate` is the arrival rate at which all targets are still met."""

    rate: float  # requests per second
    concurrency: int  # n*
    itl: float  # S(n*), seconds
    ttft: float  # at `rate`, at the attainment percentile, seconds
    kv_occupancy: float  # n*·L / pool
    binding: Binding


def prefill_seconds(model: StepTimeModel, work: Work) -> float:
    """Seconds of prompt work that one request brings."""
    return model.prefill_token * work.uncached + model.prefill_context * work.uncached * (
        work.cached + work.uncached / 2.0
    )


def token_seconds(model: StepTimeModel, work: Work, concurrency: float) -> float:
    """S(n): mean seconds per token of each of n sequences, prompts of their successors included."""
    per_sequence = model.sequence + model.kv_token * work.context + prefill_seconds(model, work) / max(work.output, 1.0)
    return model.base + per_sequence * concurrency


def throughput(model: StepTimeModel, work: Work, concurrency: float) -> float:
    """μ(n): requests per second with n sequences at work."""
    seconds = max(work.output, 1.0) * token_seconds(model, work, concurrency)
    return concurrency / seconds if seconds > 0 else math.inf


def concurrency_at(model: StepTimeModel, work: Work, rate: float, limit: float) -> float:
    """The n at which μ(n) equals `rate`: what runs in the steady state, `limit` where the rate is beyond reach."""
    output = max(work.output, 1.0)
    per_sequence = token_seconds(model, work, 1.0) - model.base
    left = 1.0 - rate * output * per_sequence
    if left <= 0:
        return limit
    return min(limit, rate * output * model.base / left)


def capacity(replica: Replica, work: Work, targets: Targets, margin: float = 1.0, burstiness: float = 1.0) -> Capacity:
    """The largest load that meets all targets. `margin` ≥ 1 is kept between the mean inter-token time and its target,
    `burstiness` is the index of dispersion of arrivals (1: Poisson)."""
    model = replica.model
    concurrency, utilisation = _operating_point(replica, work, targets, margin, burstiness)
    return Capacity(
        rate=utilisation * throughput(model, work, concurrency),
        concurrency=concurrency,
        itl=token_seconds(model, work, concurrency),
        ttft=first_token_seconds(model, work, concurrency, utilisation, targets.attainment, burstiness),
        kv_occupancy=concurrency * work.context / replica.kv_tokens if replica.kv_tokens > 0 else 0.0,
        binding=_binding(replica, work, targets, margin, burstiness),
    )


def _operating_point(
    replica: Replica, work: Work, targets: Targets, margin: float, burstiness: float
) -> tuple[int, float]:
    """n* and the utilisation of μ(n*) that the time to first token allows."""
    by_itl = _itl_concurrency(replica.model, work, targets.itl / margin, replica.max_concurrency)
    by_kv = math.floor(replica.kv_share * replica.kv_tokens / max(work.context, 1.0))
    concurrency = max(1, min(max(by_itl, replica.min_concurrency), by_kv, replica.max_concurrency))
    return concurrency, _utilisation_for(replica.model, work, concurrency, targets, burstiness)


def _binding(replica: Replica, work: Work, targets: Targets, margin: float, burstiness: float) -> Binding:
    """The bound that would gain the most if it were twice as loose; in a tie the one named first."""
    looser: tuple[tuple[Binding, Replica, Targets], ...] = (
        ("InterTokenLatency", replica, replace(targets, itl=2 * targets.itl)),
        ("KVOccupancy", replace(replica, kv_tokens=2 * replica.kv_tokens), targets),
        ("TimeToFirstToken", replica, replace(targets, ttft=2 * targets.ttft)),
        ("ConcurrencyLimit", replace(replica, max_concurrency=2 * replica.max_concurrency), targets),
    )

    def rate(relaxed: Replica, promised: Targets) -> float:
        concurrency, utilisation = _operating_point(relaxed, work, promised, margin, burstiness)
        return utilisation * throughput(relaxed.model, work, concurrency)

    return max(looser, key=lambda bound: rate(bound[1], bound[2]))[0]


def first_token_seconds(
    model: StepTimeModel, work: Work, concurrency: float, utilisation: float, share: float, burstiness: float
) -> float:
    """The time to first token that `share` of requests stay under, at `utilisation` of μ(concurrency).

    The running step ends (half of one on the mean), the prompt is computed in the steps' spare time, and before that
    comes the wait for one of n places: it is zero with probability 1 − W, else exponential, W = ρ^(√(2(n+1))−1)
    and mean wait = (c_a² + c_s²)/2 · W/(n(1−ρ)) · service time (Sakasegawa 1977).
    """
    seconds = token_seconds(model, work, concurrency)
    own = 1.5 * seconds + prefill_seconds(model, work)
    if utilisation <= 0:
        return own
    if utilisation >= 1:
        return math.inf
    service = max(work.output, 1.0) * seconds
    waits = utilisation ** (math.sqrt(2.0 * (concurrency + 1.0)) - 1.0)
    exceed = 1.0 - share
    if waits <= exceed:
        return own
    variance = (burstiness + SERVICE_VARIANCE) / 2.0
    mean_if_waiting = variance * service / (concurrency * (1.0 - utilisation))
    return own + mean_if_waiting * math.log(waits / max(exceed, 1e-6))


def queue_limit(rate: float, seconds: float, step_seconds: float) -> int:
    """Requests that may wait so that none waits longer than `seconds` at this rate of service. Even at zero seconds
    those that arrive within one step need a place to stand."""
    return max(1, math.ceil(rate * max(seconds, 0.0)), math.ceil(rate * step_seconds) + 1)


def _itl_concurrency(model: StepTimeModel, work: Work, target: float, maximum: int) -> int:
    per_sequence = token_seconds(model, work, 1.0) - model.base
    if target <= model.base:
        return 0
    if per_sequence * maximum <= target - model.base:
        return maximum
    return math.floor((target - model.base) / per_sequence)


def _utilisation_for(model: StepTimeModel, work: Work, concurrency: int, targets: Targets, burstiness: float) -> float:
    """The largest utilisation whose time to first token meets its target, by bisection: it grows with ρ."""
    low, high = 0.05, MAX_UTILISATION
    if first_token_seconds(model, work, concurrency, high, targets.attainment, burstiness) <= targets.ttft:
        return high
    for _ in range(30):
        middle = (low + high) / 2.0
        if first_token_seconds(model, work, concurrency, middle, targets.attainment, burstiness) <= targets.ttft:
            low = middle
        else:
            high = middle
    return low
