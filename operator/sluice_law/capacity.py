"""What one replica holds: the rate at which it meets the SLO, how many such replicas a load needs, and which promise
breaks first.

S(n) of `work` is linear in n, so the largest n that an inter-token target allows is closed-form; memory bounds it as
well. Inside that n the admission limit keeps the inter-token promise, and what breaks with more load is the first
token: the share of requests that meet it follows from `queueing`. A request is good when it meets both (spec.slo), so
that share is the predicted attainment.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from sluice_law.queueing import (
    SERVICE_VARIANCE,
    decoding_at,
    late_share,
    lost_share,
    own_seconds,
    prompt_share,
    spread_of,
    waiting_share,
)
from sluice_law.steptime import StepTimeModel
from sluice_law.work import Work, concurrency_at, prefill_seconds, throughput, token_seconds

__all__ = [
    "Binding",
    "Capacity",
    "Replica",
    "Targets",
    "Work",
    "attainment",
    "binding_of",
    "capacity",
    "concurrency_at",
    "enough",
    "first_token_seconds",
    "most_at_once",
    "prefill_seconds",
    "queue_limit",
    "split_burstiness",
    "sustained",
    "throughput",
    "token_seconds",
]

Binding = Literal["InterTokenLatency", "KVOccupancy", "TimeToFirstToken", "ConcurrencyLimit"]

# Beyond this the predicted wait moves by its own size per percent of load: no estimate of the load is that good.
MAX_UTILISATION: Final = 0.95
MIN_UTILISATION: Final = 0.05  # what is late even then is late for its own length: more replicas do not help it
HALVINGS: Final = 9  # to a five hundredth of μ(n*)
ROUGHLY: Final = 5  # to a thirtieth: enough to say which of two bounds gains more


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica's means and the bounds it is held to. Tokens, seconds."""

    model: StepTimeModel
    kv_tokens: float
    kv_share: float  # share of the pool that running requests may fill on the mean, 0..1
    max_concurrency: int
    min_concurrency: int = 1  # the limit never falls below, whatever the inter-token target
    batch_tokens: int = 2048  # that one step computes at most
    sheds: bool = False  # its door turns away who could not be in time: nobody waits behind them


@dataclass(frozen=True, slots=True)
class Targets:
    """The promise: times in seconds, and the share of requests that must meet both."""

    ttft: float
    itl: float
    attainment: float = 0.99


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica holds of a load and a promise. `rate` and `concurrency` are found by `capacity`; what follows from
    them is worked out when it is asked for, as sentences do and most decisions do not."""

    replica: Replica
    work: Work
    targets: Targets
    margin: float
    burstiness: float
    concurrency: int  # n*
    rate: float  # requests per second: the arrival rate at which all targets are still met

    @property
    def throughput(self) -> float:
        """μ(n*), what it serves flat out with a queue before it: requests per second."""
        return throughput(self.replica.model, self.work, self.concurrency)

    @property
    def itl(self) -> float:
        """S(n*), seconds."""
        return token_seconds(self.replica.model, self.work, self.concurrency)

    @property
    def ttft(self) -> float:
        """At `rate`, at the attainment percentile, seconds."""
        share = self.targets.attainment
        return first_token_seconds(self.replica.model, self.work, self.concurrency, self.rate, share, self.burstiness)

    @property
    def kv_occupancy(self) -> float:
        """Mean at `rate`: what runs then, times L, over the pool."""
        running = concurrency_at(self.replica.model, self.work, self.rate, self.concurrency)
        return running * self.work.context / self.replica.kv_tokens if self.replica.kv_tokens > 0 else 0.0

    @property
    def binding(self) -> Binding:
        """What would gain the most if it were looser."""
        return binding_of(self.replica, self.work, self.targets, self.margin, self.burstiness)


def capacity(replica: Replica, work: Work, targets: Targets, margin: float = 1.0, burstiness: float = 1.0) -> Capacity:
    """The largest load that meets all targets. `margin` ≥ 1 is kept between the mean inter-token time and its target,
    `burstiness` is the index of dispersion of this replica's arrivals (1: Poisson)."""
    concurrency, rate = _operating_point(replica, work, targets, margin, burstiness, HALVINGS)
    return Capacity(replica, work, targets, margin, burstiness, concurrency, rate)


def attainment(
    replica: Replica, work: Work, targets: Targets, rate: float, margin: float = 1.0, burstiness: float = 1.0
) -> float:
    """Predicted share of good requests at `rate` per second: the inter-token promise is kept by the limit n*, the
    first token is late by the wait for a place and for other prompts."""
    return _good(replica, work, targets, most_at_once(replica, work, targets, margin), rate, spread_of(burstiness))


def split_burstiness(burstiness: float, replicas: int, unevenness: float = 1.0) -> float:
    """The index of dispersion whose Poisson-split equivalent each replica sees. What the whole fleet has at work scatters
    by z = (I + c²)/2; an r-th of that falls on each of r replicas, and what the split adds is u·(1 − 1/r):

        z_r = z/r + u·(1 − 1/r)        I_r = 2·z_r − c²

    u = 1: requests are split by lot (thinning a process: I − 1 scales with the share kept; Cox & Lewis, 1966), u near 0:
    the emptiest is found for each, so that the fleet is one queue. Below 0 where even the lengths of answers even out.
    """
    count = max(1, replicas)
    spread = (burstiness + SERVICE_VARIANCE) / 2.0
    return 2.0 * (spread / count + unevenness * (1.0 - 1.0 / count)) - SERVICE_VARIANCE


def enough(
    replica: Replica,
    work: Work,
    targets: Targets,
    rate: float,
    margin: float = 1.0,
    burstiness: float = 1.0,
    unevenness: float = 1.0,
) -> tuple[int, float]:
    """The smallest number of replicas whose predicted attainment meets the target for `rate` in all, and that
    attainment. What no number reaches is not chased: then the share that an idle replica reaches is the whole."""
    fleet = _fleet(replica, work, targets, margin, burstiness, unevenness)
    low = max(1, math.ceil(rate / fleet.most - 1e-9))
    reached = fleet.good(low, rate / low)
    if reached >= fleet.goal:
        return low, reached
    high = max(low + 1, math.ceil(rate / (MIN_UTILISATION * fleet.top)))
    while high - low > 1:
        middle = (low + high) // 2
        if fleet.good(middle, rate / middle) >= fleet.goal:
            high = middle
        else:
            low = middle
    return high, fleet.good(high, rate / high)


def sustained(
    replica: Replica,
    work: Work,
    targets: Targets,
    count: int,
    margin: float = 1.0,
    burstiness: float = 1.0,
    unevenness: float = 1.0,
) -> float:
    """The largest rate in all, requests per second, that `enough` takes `count` replicas for: its inverse, to one part in
    2^HALVINGS of what they serve flat out."""
    fleet = _fleet(replica, work, targets, margin, burstiness, unevenness)
    return count * _highest(lambda each: fleet.good(count, each) >= fleet.goal, 0.0, fleet.most, HALVINGS)


def binding_of(replica: Replica, work: Work, targets: Targets, margin: float = 1.0, burstiness: float = 1.0) -> Binding:
    """The bound that would gain the most if it were twice as loose; in a tie the one named first."""
    looser: tuple[tuple[Binding, Replica, Targets], ...] = (
        ("InterTokenLatency", replica, replace(targets, itl=2 * targets.itl)),
        ("KVOccupancy", replace(replica, kv_tokens=2 * replica.kv_tokens), targets),
        ("TimeToFirstToken", replica, replace(targets, ttft=2 * targets.ttft)),
        ("ConcurrencyLimit", replace(replica, max_concurrency=2 * replica.max_concurrency), targets),
    )
    places, base = most_at_once(replica, work, targets, margin), 0.0
    gains: list[tuple[float, Binding]] = []
    for name, one, promised in looser:
        if promised is targets and most_at_once(one, work, targets, margin) == places:
            base = base or _operating_point(replica, work, targets, margin, burstiness, ROUGHLY)[1]
            gains.append((base, name))  # this bound is not where n* ends: without it nothing changes
        else:
            gains.append((_operating_point(one, work, promised, margin, burstiness, ROUGHLY)[1], name))
    return max(gains, key=lambda gain: gain[0])[1]


def first_token_seconds(
    model: StepTimeModel, work: Work, concurrency: int, rate: float, share: float, burstiness: float = 1.0
) -> float:
    """The time to first token that `share` of requests stay under at `rate` per second and at most `concurrency` at
    once, waiting for a place only; inf beyond μ(concurrency)."""
    own = own_seconds(model, work, decoding_at(model, work, concurrency, rate), 1.0)
    top = throughput(model, work, concurrency)
    if rate <= 0:
        return own
    if rate >= top:
        return math.inf
    spread = spread_of(burstiness)
    waits, exceed = waiting_share(model, work, concurrency, rate, spread), 1.0 - share
    return own if waits <= exceed else own + spread / (top - rate) * math.log(waits / max(exceed, 1e-6))


def queue_limit(rate: float, seconds: float, step_seconds: float) -> int:
    """Requests that may wait so that none waits longer than `seconds` at this rate of service. Even at zero seconds
    those that arrive within one step need a place to stand."""
    return max(1, math.ceil(rate * max(seconds, 0.0)), math.ceil(rate * step_seconds) + 1)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Any number of replicas that share a load: what is good enough, and up to which rate each is asked for it."""

    replica: Replica
    work: Work
    targets: Targets
    places: int
    top: float  # requests per second that each serves flat out
    most: float  # requests per second that each may be planned for
    goal: float
    burstiness: float
    unevenness: float

    def good(self, count: int, each: float) -> float:
        """Predicted share of good requests where `count` replicas get `each` requests per second."""
        spread = spread_of(split_burstiness(self.burstiness, count, self.unevenness))
        return _good(self.replica, self.work, self.targets, self.places, each, spread)


def _fleet(
    replica: Replica, work: Work, targets: Targets, margin: float, burstiness: float, unevenness: float
) -> _Fleet:
    places = most_at_once(replica, work, targets, margin)
    top = throughput(replica.model, work, places)
    goal = _goal(replica, work, targets, places, spread_of(1.0), top)
    most = min(top / targets.attainment if replica.sheds else MAX_UTILISATION * top, _rate_in_memory(replica, work))
    return _Fleet(replica, work, targets, places, top, most, goal, burstiness, unevenness)


def _highest(good: Callable[[float], bool], low: float, high: float, halvings: int) -> float:
    """The highest rate up to `high` that is good, by bisection; `low` where none is."""
    if good(high):
        return high
    for _ in range(halvings):
        middle = (low + high) / 2.0
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def _operating_point(
    replica: Replica, work: Work, targets: Targets, margin: float, burstiness: float, halvings: int
) -> tuple[int, float]:
    """n*, and the share of μ(n*) that the time to first token allows as a rate, by bisection: lateness grows with it."""
    places, spread = most_at_once(replica, work, targets, margin), spread_of(burstiness)
    top = throughput(replica.model, work, places)
    goal = _goal(replica, work, targets, places, spread, top)
    low, high = MIN_UTILISATION * top, min(MAX_UTILISATION * top, _rate_in_memory(replica, work))
    rate = _highest(lambda each: _good(replica, work, targets, places, each, spread) >= goal, low, high, halvings)
    return places, rate


def most_at_once(replica: Replica, work: Work, targets: Targets, margin: float = 1.0) -> int:
    """n*: the most that latency, memory and the configured bounds let run at once."""
    by_itl = _itl_concurrency(replica.model, work, targets.itl / margin, replica.max_concurrency)
    by_kv = math.floor(replica.kv_tokens / max(work.context, 1.0))  # a peak may fill it all; the target is for the mean
    return max(1, min(max(by_itl, replica.min_concurrency), by_kv, replica.max_concurrency))


def _rate_in_memory(replica: Replica, work: Work) -> float:
    """The rate at which the pool is filled to the target on the mean (Little's law)."""
    inside = max(1.0, replica.kv_share * replica.kv_tokens / max(work.context, 1.0))
    return throughput(replica.model, work, inside)


def _goal(replica: Replica, work: Work, targets: Targets, places: int, spread: float, top: float) -> float:
    """The attainment to plan for: the promised share of what a nearly idle replica reaches."""
    return targets.attainment * _good(replica, work, targets, places, MIN_UTILISATION * top, spread)


def _good(replica: Replica, work: Work, targets: Targets, places: int, rate: float, spread: float) -> float:
    model = replica.model
    decoding = decoding_at(model, work, places, rate)
    share = prompt_share(model, work, decoding, targets.itl, replica.batch_tokens)
    left = targets.ttft - own_seconds(model, work, decoding, share)
    not_in_time = lost_share if replica.sheds else late_share
    return 1.0 - not_in_time(model, work, places, rate, left, spread, share)


def _itl_concurrency(model: StepTimeModel, work: Work, target: float, maximum: int) -> int:
    per_sequence = token_seconds(model, work, 1.0) - model.base
    if target <= model.base:
        return 0
    if per_sequence * maximum <= target - model.base:
        return maximum
    return math.floor((target - model.base) / per_sequence)
