"""What one replica holds: the rate at which it meets the SLO, and which promise breaks first beyond it.

A request of u uncached prompt tokens (behind h cached ones) and o output tokens, decoding among n sequences of mean
context L, costs the step-time model of `steptime`:

    S(n) = base + sequence·n + kv_token·n·L + prefill·n/o        seconds per token
    prefill = prefill_token·u + prefill_context·u·(h + u/2)      seconds per request
    μ(n) = n / (o·S(n))                                          requests per second (Little's law)

Each of n sequences brings a prompt every o steps, hence prefill·n/o (the co-located form of WVA's queueing model and
of Vidur, MLSys'24). S is linear in n, so the largest n that an inter-token target allows is closed-form.
Time to first token is the wait for one of n places plus the prompt's own work. The wait is that of a birth–death chain
with departures μ(1)…μ(n), constant beyond (as WVA's queueing model; a batch that is not full steps faster, which an
n-server queue of constant service misses by far), its mean scaled by (c_a² + c_s²)/2 for arrivals and lengths that
are not exponential (Allen–Cunneen, in Whitt, "Approximations for the GI/G/m queue", 1993).
"""

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

from sluice_law.steptime import StepTimeModel

Binding = Literal["InterTokenLatency", "KVOccupancy", "TimeToFirstToken", "ConcurrencyLimit"]

# Beyond this the predicted wait moves by its own size per percent of load: no estimate of the load is that good.
MAX_UTILISATION: Final = 0.95
MIN_UTILISATION: Final = 0.05  # a target below the prompt's own time cannot be met by any number of replicas
HALVINGS: Final = 10  # to a thousandth of μ(n*)
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
    throughput: float  # μ(n*), what it serves flat out with a queue before it
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
    concurrency, rate = _operating_point(replica, work, targets, margin, burstiness)
    return Capacity(
        rate=rate,
        throughput=throughput(model, work, concurrency),
        concurrency=concurrency,
        itl=token_seconds(model, work, concurrency),
        ttft=first_token_seconds(model, work, concurrency, rate, targets.attainment, burstiness),
        kv_occupancy=concurrency * work.context / replica.kv_tokens if replica.kv_tokens > 0 else 0.0,
        binding=_binding(replica, work, targets, margin, burstiness),
    )


def _operating_point(
    replica: Replica, work: Work, targets: Targets, margin: float, burstiness: float
) -> tuple[int, float]:
    """n*, and the share of μ(n*) that the time to first token allows as a rate."""
    by_itl = _itl_concurrency(replica.model, work, targets.itl / margin, replica.max_concurrency)
    by_kv = math.floor(replica.kv_share * replica.kv_tokens / max(work.context, 1.0))
    concurrency = max(1, min(max(by_itl, replica.min_concurrency), by_kv, replica.max_concurrency))
    return concurrency, _rate_for(replica.model, work, concurrency, targets, burstiness)


def _binding(replica: Replica, work: Work, targets: Targets, margin: float, burstiness: float) -> Binding:
    """The bound that would gain the most if it were twice as loose; in a tie the one named first."""
    looser: tuple[tuple[Binding, Replica, Targets], ...] = (
        ("InterTokenLatency", replica, replace(targets, itl=2 * targets.itl)),
        ("KVOccupancy", replace(replica, kv_tokens=2 * replica.kv_tokens), targets),
        ("TimeToFirstToken", replica, replace(targets, ttft=2 * targets.ttft)),
        ("ConcurrencyLimit", replace(replica, max_concurrency=2 * replica.max_concurrency), targets),
    )

    return max(looser, key=lambda bound: _operating_point(bound[1], work, bound[2], margin, burstiness)[1])[0]


def first_token_seconds(
    model: StepTimeModel, work: Work, concurrency: int, rate: float, share: float, burstiness: float = 1.0
) -> float:
    """The time to first token that `share` of requests stay under at `rate` per second and at most `concurrency` at
    once; inf beyond μ(concurrency). A running step ends first (half of one on the mean) and the prompt takes one."""
    seconds = token_seconds(model, work, concurrency)
    own = 1.5 * seconds + prefill_seconds(model, work)
    top = throughput(model, work, concurrency)
    if rate <= 0:
        return own
    if rate >= top:
        return math.inf
    waits, exceed = _waits(model, work, concurrency, rate), 1.0 - share
    if waits <= exceed:
        return own
    mean_if_waiting = (burstiness + SERVICE_VARIANCE) / 2.0 / (top - rate)
    return own + mean_if_waiting * math.log(waits / max(exceed, 1e-6))


def _waits(model: StepTimeModel, work: Work, concurrency: int, rate: float) -> float:
    """Probability that an arrival finds all places taken: the chain's weights are Π rate/μ(k)."""
    output = max(work.output, 1.0)
    fixed, per_sequence = rate * output * model.base, rate * output * (token_seconds(model, work, 1.0) - model.base)
    weight = total = 1.0
    for places in range(1, concurrency + 1):
        weight *= fixed / places + per_sequence
        total += weight
        if total > 1e200:
            weight, total = weight * 1e-200, total * 1e-200
    utilisation = rate / throughput(model, work, concurrency)
    full = weight / (1.0 - utilisation)
    return full / (total - weight + full)


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


def _rate_for(model: StepTimeModel, work: Work, concurrency: int, targets: Targets, burstiness: float) -> float:
    """The largest rate whose time to first token meets its target, by bisection: it grows with the rate."""
    top = throughput(model, work, concurrency)
    low, high = MIN_UTILISATION * top, MAX_UTILISATION * top
    if first_token_seconds(model, work, concurrency, high, targets.attainment, burstiness) <= targets.ttft:
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        if first_token_seconds(model, work, concurrency, middle, targets.attainment, burstiness) <= targets.ttft:
            low = middle
        else:
            high = middle
    return low
