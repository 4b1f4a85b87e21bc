"""Capacity of one replica: its rate within the SLO, the number of replicas for a load, and the binding target.

S(n) of `workload` is linear in n, so the largest n that an inter-token target allows has a closed form. KV memory
bounds n as well. The admission limit keeps n within that bound, so more load first breaks the TTFT target. The share of
requests that meet it follows from `queueing`. A request is good when it meets both targets (spec.slo), so that share is
the predicted attainment.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from sluice_perfmodel.queueing import (
    decoding_at,
    late_probability,
    prefill_time_share,
    rejection_probability,
    spread_of,
    unqueued_ttft,
    waiting_probability,
)
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.step_time import StepTimeModel
from sluice_perfmodel.workload import Work, concurrency_at, prefill_seconds, throughput, token_seconds

_SETTINGS: Final = PERFMODEL.capacity

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
    "first_token_seconds",
    "prefill_seconds",
    "queue_limit",
    "replicas_needed",
    "slo_concurrency",
    "split_burstiness",
    "sustained_rate",
    "throughput",
    "token_seconds",
]

Binding = Literal["InterTokenLatency", "KVOccupancy", "TimeToFirstToken", "ConcurrencyLimit"]

HALVINGS: Final = 9  # precision 1/512 of μ(n*)
ROUGHLY: Final = 5  # precision 1/32: enough to tell which of two bounds gains more


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica's step-time model and limits. Tokens, seconds."""

    model: StepTimeModel
    kv_tokens: float
    kv_share: float  # target mean share of the pool that running requests hold, 0..1
    max_concurrency: int
    min_concurrency: int = 1  # lower bound of the limit, whatever the inter-token target
    batch_tokens: int = 2048  # maximum tokens that one step computes
    sheds: bool = False  # load shedding: requests that cannot be in time are rejected, so none waits behind them


@dataclass(frozen=True, slots=True)
class Targets:
    """The SLO targets: times in seconds, and the share of requests that must meet both."""

    ttft: float
    itl: float
    attainment: float = 0.99


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of one replica for a mean request and SLO targets.

    `capacity` computes `rate` and `concurrency`. The properties are computed on access, because sentences need them and
    most decisions do not.
    """

    replica: Replica
    work: Work
    targets: Targets
    margin: float
    burstiness: float
    concurrency: int  # n*
    rate: float  # requests per second: the arrival rate at which all targets are still met

    @property
    def throughput(self) -> float:
        """μ(n*), the service rate with a queue that never empties: requests per second."""
        return throughput(self.replica.model, self.work, self.concurrency)

    @property
    def itl(self) -> float:
        """S(n*): mean inter-token time, seconds."""
        return token_seconds(self.replica.model, self.work, self.concurrency)

    @property
    def ttft(self) -> float:
        """Time to first token at `rate`, at the attainment percentile, seconds."""
        share = self.targets.attainment
        return first_token_seconds(self.replica.model, self.work, self.concurrency, self.rate, share, self.burstiness)

    @property
    def kv_occupancy(self) -> float:
        """Mean KV occupancy at `rate`: running requests times L, over the pool, 0..1."""
        running = concurrency_at(self.replica.model, self.work, self.rate, self.concurrency)
        return running * self.work.context / self.replica.kv_tokens if self.replica.kv_tokens > 0 else 0.0

    @property
    def binding(self) -> Binding:
        """The bound whose relaxation gains the most capacity."""
        return binding_of(self.replica, self.work, self.targets, self.margin, self.burstiness)


def capacity(replica: Replica, work: Work, targets: Targets, margin: float = 1.0, burstiness: float = 1.0) -> Capacity:
    """The largest load that meets all targets.

    `margin` ≥ 1 is kept between the mean inter-token time and its target. `burstiness` is the index of dispersion of
    this replica's arrivals (1: Poisson).
    """
    concurrency, rate = _operating_point(replica, work, targets, margin, burstiness, HALVINGS)
    return Capacity(replica, work, targets, margin, burstiness, concurrency, rate)


def attainment(
    replica: Replica, work: Work, targets: Targets, rate: float, margin: float = 1.0, burstiness: float = 1.0
) -> float:
    """Predicted share of good requests at `rate` per second.

    The limit n* keeps the inter-token target. The first token is late by the wait for a concurrency slot and for other
    prompts.
    """
    return _good(replica, work, targets, slo_concurrency(replica, work, targets, margin), rate, spread_of(burstiness))


def split_burstiness(burstiness: float, replicas: int, unevenness: float = 1.0) -> float:
    """The index of dispersion of one replica's arrivals when `replicas` share a stream of index `burstiness`.

    The work in the whole fleet has the spread z = (I + c²)/2. Each of r replicas takes 1/r of it, and the split adds
    u·(1 − 1/r):

        z_r = z/r + u·(1 − 1/r)        I_r = 2·z_r − c²

    u = 1 is a random split (thinning a process: I − 1 scales with the share kept; Cox & Lewis, 1966). u near 0 sends
    each request to the emptiest replica, so that the fleet is one queue. The result is below 0 where the split also
    evens out the output lengths.
    """
    count = max(1, replicas)
    spread = (burstiness + _SETTINGS.service_variance) / 2.0
    return 2.0 * (spread / count + unevenness * (1.0 - 1.0 / count)) - _SETTINGS.service_variance


def replicas_needed(
    replica: Replica,
    work: Work,
    targets: Targets,
    rate: float,
    margin: float = 1.0,
    burstiness: float = 1.0,
    unevenness: float = 1.0,
) -> tuple[int, float]:
    """The smallest number of replicas whose attainment meets the target at a total of `rate`, and that attainment.

    A target that no number of replicas reaches is scaled by the share that a nearly idle replica reaches. The search is
    a bisection: O(log(rate / μ(n*))) evaluations.
    """
    fleet = _fleet(replica, work, targets, margin, burstiness, unevenness)
    low = max(1, math.ceil(rate / fleet.most - 1e-9))
    reached = fleet.good(low, rate / low)
    if reached >= fleet.goal:
        return low, reached
    high = max(low + 1, math.ceil(rate / (_SETTINGS.least_utilisation * fleet.top)))
    while high - low > 1:
        middle = (low + high) // 2
        if fleet.good(middle, rate / middle) >= fleet.goal:
            high = middle
        else:
            low = middle
    return high, fleet.good(high, rate / high)


def sustained_rate(
    replica: Replica,
    work: Work,
    targets: Targets,
    count: int,
    margin: float = 1.0,
    burstiness: float = 1.0,
    unevenness: float = 1.0,
) -> float:
    """The largest total rate, requests per second, for which `replicas_needed` returns `count` replicas: its inverse.

    The precision is one part in 2^HALVINGS of the replicas' throughput.
    """
    fleet = _fleet(replica, work, targets, margin, burstiness, unevenness)
    return count * _highest(lambda each: fleet.good(count, each) >= fleet.goal, 0.0, fleet.most, HALVINGS)


def binding_of(replica: Replica, work: Work, targets: Targets, margin: float = 1.0, burstiness: float = 1.0) -> Binding:
    """The bound that gains the most rate when it is twice as loose; the first one listed wins a tie."""
    looser: tuple[tuple[Binding, Replica, Targets], ...] = (
        ("InterTokenLatency", replica, replace(targets, itl=2 * targets.itl)),
        ("KVOccupancy", replace(replica, kv_tokens=2 * replica.kv_tokens), targets),
        ("TimeToFirstToken", replica, replace(targets, ttft=2 * targets.ttft)),
        ("ConcurrencyLimit", replace(replica, max_concurrency=2 * replica.max_concurrency), targets),
    )
    slots, base = slo_concurrency(replica, work, targets, margin), 0.0
    gains: list[tuple[float, Binding]] = []
    for name, one, loosened in looser:
        if loosened is targets and slo_concurrency(one, work, targets, margin) == slots:
            base = base or _operating_point(replica, work, targets, margin, burstiness, ROUGHLY)[1]
            gains.append((base, name))  # n* is not set by this bound: relaxing it changes nothing
        else:
            gains.append((_operating_point(one, work, loosened, margin, burstiness, ROUGHLY)[1], name))
    return max(gains, key=lambda gain: gain[0])[1]


def first_token_seconds(
    model: StepTimeModel, work: Work, concurrency: int, rate: float, share: float, burstiness: float = 1.0
) -> float:
    """The time to first token that a `share` of requests stays under, in seconds; inf at or beyond μ(concurrency).

    It holds at `rate` per second and at most `concurrency` running requests. Only the wait for a concurrency slot
    counts.
    """
    own = unqueued_ttft(model, work, decoding_at(model, work, concurrency, rate), 1.0)
    top = throughput(model, work, concurrency)
    if rate <= 0:
        return own
    if rate >= top:
        return math.inf
    spread = spread_of(burstiness)
    waits, exceed = waiting_probability(model, work, concurrency, rate, spread), 1.0 - share
    return own if waits <= exceed else own + spread / (top - rate) * math.log(waits / max(exceed, 1e-6))


def queue_limit(rate: float, seconds: float, step_seconds: float) -> int:
    """Requests that may wait so that none waits longer than `seconds` at this service rate.

    Even at zero seconds the queue holds the requests that arrive within one step.
    """
    return max(1, math.ceil(rate * max(seconds, 0.0)), math.ceil(rate * step_seconds) + 1)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Any number of replicas that share a load: the attainment to reach, and the highest rate planned per replica."""

    replica: Replica
    work: Work
    targets: Targets
    slots: int
    top: float  # throughput of each replica, requests per second
    most: float  # highest planned rate of each replica, requests per second
    goal: float
    burstiness: float
    unevenness: float

    def good(self, count: int, each: float) -> float:
        """Predicted share of good requests where each of `count` replicas gets `each` requests per second."""
        spread = spread_of(split_burstiness(self.burstiness, count, self.unevenness))
        return _good(self.replica, self.work, self.targets, self.slots, each, spread)


def _fleet(
    replica: Replica, work: Work, targets: Targets, margin: float, burstiness: float, unevenness: float
) -> _Fleet:
    slots = slo_concurrency(replica, work, targets, margin)
    top = throughput(replica.model, work, slots)
    goal = _goal(replica, work, targets, slots, spread_of(1.0), top)
    planned = top / targets.attainment if replica.sheds else _SETTINGS.most_utilisation * top
    most = min(planned, _rate_in_memory(replica, work))
    return _Fleet(replica, work, targets, slots, top, most, goal, burstiness, unevenness)


def _highest(good: Callable[[float], bool], low: float, high: float, halvings: int) -> float:
    """The highest rate up to `high` for which `good` holds, by bisection; `low` where there is none."""
    if good(high):
        return high
    for _ in range(halvings):
        middle = (low + high) / 2.0
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def _operating_point(
    replica: Replica, work: Work, targets: Targets, margin: float, burstiness: float, halvings: int
) -> tuple[int, float]:
    """n*, and the highest rate that the TTFT target allows, by bisection: lateness grows with the rate."""
    slots, spread = slo_concurrency(replica, work, targets, margin), spread_of(burstiness)
    top = throughput(replica.model, work, slots)
    goal = _goal(replica, work, targets, slots, spread, top)
    low = _SETTINGS.least_utilisation * top
    high = min(_SETTINGS.most_utilisation * top, _rate_in_memory(replica, work))
    rate = _highest(lambda each: _good(replica, work, targets, slots, each, spread) >= goal, low, high, halvings)
    return slots, rate


def slo_concurrency(replica: Replica, work: Work, targets: Targets, margin: float = 1.0) -> int:
    """n*: the largest number of running requests that latency, memory and the configured bounds allow."""
    by_itl = _itl_concurrency(replica.model, work, targets.itl / margin, replica.max_concurrency)
    by_kv = math.floor(replica.kv_tokens / max(work.context, 1.0))  # a peak may fill the pool: kv_share is for the mean
    return max(1, min(max(by_itl, replica.min_concurrency), by_kv, replica.max_concurrency))


def _rate_in_memory(replica: Replica, work: Work) -> float:
    """The rate at which mean KV occupancy equals its target (Little's law)."""
    inside = max(1.0, replica.kv_share * replica.kv_tokens / max(work.context, 1.0))
    return throughput(replica.model, work, inside)


def _goal(replica: Replica, work: Work, targets: Targets, slots: int, spread: float, top: float) -> float:
    """The attainment to plan for: the target's share of the attainment of a nearly idle replica."""
    return targets.attainment * _good(replica, work, targets, slots, _SETTINGS.least_utilisation * top, spread)


def _good(replica: Replica, work: Work, targets: Targets, slots: int, rate: float, spread: float) -> float:
    model = replica.model
    decoding = decoding_at(model, work, slots, rate)
    share = prefill_time_share(model, work, decoding, targets.itl, replica.batch_tokens)
    left = targets.ttft - unqueued_ttft(model, work, decoding, share)
    not_in_time = rejection_probability if replica.sheds else late_probability
    return 1.0 - not_in_time(model, work, slots, rate, left, spread, share)


def _itl_concurrency(model: StepTimeModel, work: Work, target: float, maximum: int) -> int:
    per_sequence = token_seconds(model, work, 1.0) - model.base
    if target <= model.base:
        return 0
    if per_sequence * maximum <= target - model.base:
        return maximum
    return math.floor((target - model.base) / per_sequence)
