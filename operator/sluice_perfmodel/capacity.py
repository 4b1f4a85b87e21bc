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
    SlotQueue,
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
    "ServiceConditions",
    "Targets",
    "Traffic",
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
class ServiceConditions:
    """What one replica serves: its limits, the mean request and the SLO targets."""

    replica: Replica
    work: Work
    targets: Targets
    margin: float = 1.0  # ≥ 1, kept between the mean inter-token time and its target


@dataclass(frozen=True, slots=True)
class Traffic:
    """How requests reach the replicas of a fleet."""

    burstiness: float = 1.0  # index of dispersion of the fleet's arrivals; 1: Poisson
    unevenness: float = 1.0  # split over replicas: 1 random, near 0 even


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of one replica under its conditions.

    `capacity` computes `rate` and `concurrency`. The properties are computed on access, because sentences need them and
    most decisions do not.
    """

    conditions: ServiceConditions
    burstiness: float  # index of dispersion of this replica's arrivals
    concurrency: int  # n*
    rate: float  # requests per second: the arrival rate at which all targets are still met

    @property
    def throughput(self) -> float:
        """μ(n*), the service rate with a queue that never empties: requests per second."""
        return throughput(self.conditions.replica.model, self.conditions.work, self.concurrency)

    @property
    def itl(self) -> float:
        """S(n*): mean inter-token time, seconds."""
        return token_seconds(self.conditions.replica.model, self.conditions.work, self.concurrency)

    @property
    def ttft(self) -> float:
        """Time to first token at `rate`, at the attainment percentile, seconds."""
        one = self.conditions
        queue = SlotQueue(one.replica.model, one.work, self.concurrency, spread_of(self.burstiness))
        return first_token_seconds(queue, self.rate, one.targets.attainment)

    @property
    def kv_occupancy(self) -> float:
        """Mean KV occupancy at `rate`: running requests times L, over the pool, 0..1."""
        replica, work = self.conditions.replica, self.conditions.work
        running = concurrency_at(replica.model, work, self.rate, self.concurrency)
        return running * work.context / replica.kv_tokens if replica.kv_tokens > 0 else 0.0

    @property
    def binding(self) -> Binding:
        """The bound whose relaxation gains the most capacity."""
        return binding_of(self.conditions, self.burstiness)


def capacity(conditions: ServiceConditions, burstiness: float = 1.0) -> Capacity:
    """The largest load that meets all targets.

    `burstiness` is the index of dispersion of this replica's arrivals (1: Poisson).
    """
    concurrency, rate = _operating_point(conditions, burstiness, HALVINGS)
    return Capacity(conditions, burstiness, concurrency, rate)


def attainment(conditions: ServiceConditions, rate: float, burstiness: float = 1.0) -> float:
    """Predicted share of good requests of one replica at `rate` per second.

    The limit n* keeps the inter-token target. The first token is late by the wait for a concurrency slot and for other
    prompts.
    """
    return _good(conditions, slo_concurrency(conditions), rate, spread_of(burstiness))


def split_burstiness(traffic: Traffic, replicas: int) -> float:
    """The index of dispersion of one replica's arrivals when `replicas` share the traffic.

    The work in the whole fleet has the spread z = (I + c²)/2. Each of r replicas takes 1/r of it, and the split adds
    u·(1 − 1/r):

        z_r = z/r + u·(1 − 1/r)        I_r = 2·z_r − c²

    u = 1 is a random split (thinning a process: I − 1 scales with the share kept; Cox & Lewis, 1966). u near 0 sends
    each request to the emptiest replica, so that the fleet is one queue. The result is below 0 where the split also
    evens out the output lengths.
    """
    count = max(1, replicas)
    spread = (traffic.burstiness + _SETTINGS.service_variance) / 2.0
    split = spread / count + traffic.unevenness * (1.0 - 1.0 / count)
    return 2.0 * split - _SETTINGS.service_variance


def replicas_needed(conditions: ServiceConditions, rate: float, traffic: Traffic) -> tuple[int, float]:
    """The smallest number of replicas whose attainment meets the target at a total of `rate`, and that attainment.

    A target that no number of replicas reaches is scaled by the share that a nearly idle replica reaches. The search is
    a bisection: O(log(rate / μ(n*))) evaluations.
    """
    fleet = _fleet(conditions, traffic)
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


def sustained_rate(conditions: ServiceConditions, count: int, traffic: Traffic) -> float:
    """The largest total rate, requests per second, for which `replicas_needed` returns `count`: its inverse.

    The precision is one part in 2^HALVINGS of the replicas' throughput.
    """
    fleet = _fleet(conditions, traffic)
    return count * _highest(lambda each: fleet.good(count, each) >= fleet.goal, 0.0, fleet.most, HALVINGS)


def binding_of(conditions: ServiceConditions, burstiness: float = 1.0) -> Binding:
    """The bound that gains the most rate when it is twice as loose; the first one listed wins a tie."""
    replica, targets = conditions.replica, conditions.targets
    looser: tuple[tuple[Binding, Replica, Targets], ...] = (
        ("InterTokenLatency", replica, replace(targets, itl=2 * targets.itl)),
        ("KVOccupancy", replace(replica, kv_tokens=2 * replica.kv_tokens), targets),
        ("TimeToFirstToken", replica, replace(targets, ttft=2 * targets.ttft)),
        ("ConcurrencyLimit", replace(replica, max_concurrency=2 * replica.max_concurrency), targets),
    )
    slots, base = slo_concurrency(conditions), 0.0
    gains: list[tuple[float, Binding]] = []
    for name, one, loosened in looser:
        relaxed = replace(conditions, replica=one, targets=loosened)
        if loosened is targets and slo_concurrency(relaxed) == slots:
            base = base or _operating_point(conditions, burstiness, ROUGHLY)[1]
            gains.append((base, name))  # n* is not set by this bound: relaxing it changes nothing
        else:
            gains.append((_operating_point(relaxed, burstiness, ROUGHLY)[1], name))
    return max(gains, key=lambda gain: gain[0])[1]


def first_token_seconds(queue: SlotQueue, rate: float, share: float) -> float:
    """The time to first token that a `share` of requests stays under, in seconds; inf at or beyond μ(slots).

    It holds at `rate` per second. Only the wait for a concurrency slot counts.
    """
    unqueued = unqueued_ttft(queue.model, queue.work, decoding_at(queue, rate), 1.0)
    top = throughput(queue.model, queue.work, queue.slots)
    if rate <= 0:
        return unqueued
    if rate >= top:
        return math.inf
    waits, exceed = waiting_probability(queue, rate), 1.0 - share
    return unqueued if waits <= exceed else unqueued + queue.spread / (top - rate) * math.log(waits / max(exceed, 1e-6))


def queue_limit(rate: float, seconds: float, step_seconds: float) -> int:
    """Requests that may wait so that none waits longer than `seconds` at this service rate.

    Even at zero seconds the queue holds the requests that arrive within one step.
    """
    return max(1, math.ceil(rate * max(seconds, 0.0)), math.ceil(rate * step_seconds) + 1)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Any number of replicas that share a load: the attainment to reach, and the highest rate planned per replica."""

    conditions: ServiceConditions
    traffic: Traffic
    slots: int
    top: float  # throughput of each replica, requests per second
    most: float  # highest planned rate of each replica, requests per second
    goal: float

    def good(self, count: int, each: float) -> float:
        """Predicted share of good requests where each of `count` replicas gets `each` requests per second."""
        spread = spread_of(split_burstiness(self.traffic, count))
        return _good(self.conditions, self.slots, each, spread)


def _fleet(conditions: ServiceConditions, traffic: Traffic) -> _Fleet:
    slots = slo_concurrency(conditions)
    top = throughput(conditions.replica.model, conditions.work, slots)
    goal = _goal(conditions, slots, spread_of(1.0), top)
    sheds, share = conditions.replica.sheds, conditions.targets.attainment
    planned = top / share if sheds else _SETTINGS.most_utilisation * top
    return _Fleet(conditions, traffic, slots, top, min(planned, _rate_in_memory(conditions)), goal)


def _highest(good: Callable[[float], bool], low: float, high: float, halvings: int) -> float:
    """The highest rate up to `high` for which `good` holds, by bisection; `low` where there is none."""
    if good(high):
        return high
    for _ in range(halvings):
        middle = (low + high) / 2.0
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def _operating_point(conditions: ServiceConditions, burstiness: float, halvings: int) -> tuple[int, float]:
    """n*, and the highest rate that the TTFT target allows, by bisection: lateness grows with the rate."""
    slots, spread = slo_concurrency(conditions), spread_of(burstiness)
    top = throughput(conditions.replica.model, conditions.work, slots)
    goal = _goal(conditions, slots, spread, top)
    low = _SETTINGS.least_utilisation * top
    high = min(_SETTINGS.most_utilisation * top, _rate_in_memory(conditions))
    rate = _highest(lambda each: _good(conditions, slots, each, spread) >= goal, low, high, halvings)
    return slots, rate


def slo_concurrency(conditions: ServiceConditions) -> int:
    """n*: the largest number of running requests that latency, memory and the configured bounds allow."""
    replica, work = conditions.replica, conditions.work
    target = conditions.targets.itl / conditions.margin
    by_itl = _itl_concurrency(replica.model, work, target, replica.max_concurrency)
    by_kv = math.floor(replica.kv_tokens / max(work.context, 1.0))  # a peak may fill the pool: kv_share is for the mean
    return max(1, min(max(by_itl, replica.min_concurrency), by_kv, replica.max_concurrency))


def _rate_in_memory(conditions: ServiceConditions) -> float:
    """The rate at which mean KV occupancy equals its target (Little's law)."""
    replica, work = conditions.replica, conditions.work
    running = max(1.0, replica.kv_share * replica.kv_tokens / max(work.context, 1.0))
    return throughput(replica.model, work, running)


def _goal(conditions: ServiceConditions, slots: int, spread: float, top: float) -> float:
    """The attainment to plan for: the target's share of the attainment of a nearly idle replica."""
    idle = _good(conditions, slots, _SETTINGS.least_utilisation * top, spread)
    return conditions.targets.attainment * idle


def _good(conditions: ServiceConditions, slots: int, rate: float, spread: float) -> float:
    """Predicted share of good requests at `rate` per second."""
    replica, targets = conditions.replica, conditions.targets
    queue = SlotQueue(replica.model, conditions.work, slots, spread)
    decoding = decoding_at(queue, rate)
    share = prefill_time_share(replica.model, conditions.work, decoding, targets.itl, replica.batch_tokens)
    left = targets.ttft - unqueued_ttft(replica.model, conditions.work, decoding, share)
    not_in_time = rejection_probability if replica.sheds else late_probability
    return 1.0 - not_in_time(queue, rate, left, share)


def _itl_concurrency(model: StepTimeModel, work: Work, target: float, maximum: int) -> int:
    per_sequence = token_seconds(model, work, 1.0) - model.base
    if target <= model.base:
        return 0
    if per_sequence * maximum <= target - model.base:
        return maximum
    return math.floor((target - model.base) / per_sequence)
