"""The model's recommendation: the smallest number of replicas whose predicted attainment meets the target.

Attainment is the share of good requests by spec.slo, for the forecast demand.
"""

import math
from dataclasses import dataclass, replace

from sluice_operator.autoscaler.replicas.demand import Demand
from sluice_operator.autoscaler.settings import LAW
from sluice_perfmodel.capacity import (
    Capacity,
    ServiceConditions,
    Traffic,
    attainment,
    capacity,
    replicas_needed,
    split_burstiness,
    sustained_rate,
)


@dataclass(frozen=True, slots=True)
class FleetAssumptions:
    """What the prediction assumes about the fleet besides the capacity of one replica."""

    current: int  # replicas
    maximum: int  # replicas that the spec allows
    confidence: float = 1.0  # at 0.5 the model is evaluated for twice the load
    unevenness: float = 1.0  # split of requests over replicas: 1 random, near 0 even


@dataclass(frozen=True, slots=True)
class Prediction:
    """The number of replicas by the model, and the inputs of its explanation.

    The properties are computed on access, because most decisions write no sentence.
    """

    capacity: Capacity  # of one replica, with the mean request and the targets behind it
    demand: Demand
    fleet: FleetAssumptions
    scale_out_to: int  # fewest replicas that meet the target at the expected load
    scale_in_floor: int  # fewest that meet it at the highest load
    attainment: float  # with the count for the expected load alone

    @property
    def confidence_adds_replicas(self) -> bool:
        """Whether the model at full confidence would ask for fewer replicas."""
        confidence, rate = self.fleet.confidence, self.demand.highest
        if confidence >= 1.0:
            return False
        return self._needed(rate / confidence) > self._needed(rate / 1.0)

    @property
    def attainment_now(self) -> float:
        """Attainment with the current count at the expected load."""
        one, each = self.capacity, self.demand.expected / (self.fleet.confidence * max(1, self.fleet.current))
        return attainment(one.conditions, each, one.burstiness)

    @property
    def turning_rate(self) -> float:
        """The rate at which the decision would differ, requests per second.

        On scale-out: up to this rate one replica fewer is enough. On scale-in: above this rate the current count stays.
        0 where the count does not change.
        """
        current, confidence = self.fleet.current, self.fleet.confidence
        if self.scale_out_to > current:
            fewer = min(self.scale_out_to, self.fleet.maximum) - 1
            served, drained = _served_and_drained(self.capacity, self.demand)
            saturated = (self.capacity.throughput * confidence * fewer - drained) / served
            return max(0.0, min(self._sustained_rate(fewer) if fewer else 0.0, saturated))
        return self._sustained_rate(current - 1) if self.scale_in_floor < current else 0.0

    def _needed(self, rate: float) -> int:
        return replicas_needed(self.capacity.conditions, rate, _traffic(self.demand, self.fleet))[0]

    def _sustained_rate(self, count: int) -> float:
        traffic = _traffic(self.demand, self.fleet)
        return self.fleet.confidence * sustained_rate(self.capacity.conditions, count, traffic)


def predict(
    conditions: ServiceConditions, demand: Demand, fleet: FleetAssumptions, planned_attainment: float
) -> Prediction:
    """Evaluate the model for this demand and the attainment to plan for."""
    planned = replace(conditions, targets=replace(conditions.targets, attainment=planned_attainment))
    traffic = _traffic(demand, fleet)
    one = capacity(planned, split_burstiness(traffic, max(1, fleet.current)))
    scale_out_to, reached = replicas_needed(planned, demand.expected / fleet.confidence, traffic)
    served, drained = _served_and_drained(one, demand)
    saturated = _fewest(demand.expected * served + drained, one.throughput * fleet.confidence)
    scale_out_to = max(scale_out_to, saturated)
    floor, _ = replicas_needed(planned, demand.highest / fleet.confidence, traffic)
    return Prediction(one, demand, fleet, scale_out_to, max(scale_out_to, floor), reached)


def _traffic(demand: Demand, fleet: FleetAssumptions) -> Traffic:
    return Traffic(demand.arrivals.dispersion, fleet.unevenness)


def _served_and_drained(one: Capacity, demand: Demand) -> tuple[float, float]:
    """Share of arrivals to serve, and the rate in requests per second at which the backlog drains beside them.

    The backlog is late in any case, so it drains at full throughput. With load shedding the rejected requests need no
    replica. A request that waits now no longer waits when a replica ordered now serves, so the backlog then drains over
    the horizon (`backlog_seconds` at least).
    """
    seconds = LAW.replicas.backlog_seconds
    if one.conditions.replica.sheds:
        return one.conditions.targets.attainment, demand.backlog / max(seconds, demand.horizon)
    return 1.0, demand.backlog / seconds


def _fewest(rate: float, each: float) -> int:
    """Replicas that together hold `rate`; an excess of 1e-9 adds none."""
    return math.ceil(rate / each - 1e-9)
