"""The model's recommendation: the smallest number of replicas whose predicted attainment meets the target.

Attainment is the share of good requests by spec.slo, for the forecast demand.
"""

import math
from dataclasses import dataclass, replace

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.replicas.bounds import ReplicaRange
from sluice_operator.autoscaler.replicas.capacity_inputs import CapacityInputs, reachable_targets
from sluice_operator.autoscaler.replicas.demand import DRAIN, Demand
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_perfmodel.capacity import Capacity, attainment, capacity, replicas_needed, split_burstiness, sustained_rate
from sluice_perfmodel.concurrency_limit import MARGIN


@dataclass(frozen=True, slots=True)
class Prediction:
    """The number of replicas by the model, and the inputs of its explanation.

    The properties are computed on access, because most decisions write no sentence.
    """

    capacity: Capacity  # of one replica, with the mean request and the targets behind it
    asked: Demand
    confidence: float  # model confidence: at 0.5 the model is evaluated for twice the load
    unevenness: float
    current: int  # replicas
    most: int  # replicas that the spec allows
    up: int
    keep: int
    reached: float  # attainment with the count for the expected load alone

    @property
    def dear(self) -> bool:
        """Whether the model at full confidence would ask for fewer replicas."""
        if self.confidence >= 1.0:
            return False
        one, highest, bursts = self.capacity, self.asked.highest, self.asked.arrivals.dispersion
        reduced, full = (
            _enough(one, highest / confidence, bursts, self.unevenness)[0] for confidence in (self.confidence, 1.0)
        )
        return reduced > full

    @property
    def predicted(self) -> tuple[float, float]:
        """Attainment with the current count, and with `up`."""
        one, each = self.capacity, self.asked.expected / (self.confidence * max(1, self.current))
        return attainment(one.replica, one.work, one.targets, each, one.margin, one.burstiness), self.reached

    @property
    def turn(self) -> float:
        """The rate at which the decision would differ, requests per second.

        On scale-out: up to this rate one replica fewer than `up` is enough. On scale-in: above this rate the current
        count stays. 0 where the count does not change.
        """
        if self.up > self.current:
            fewer = min(self.up, self.most) - 1
            served, waits = _served_and_waiting(self.capacity, self.asked)
            flat_out = (self.capacity.throughput * self.confidence * fewer - waits) / served
            return max(0.0, min(self._sustained_rate(fewer) if fewer else 0.0, flat_out))
        return self._sustained_rate(self.current - 1) if self.keep < self.current else 0.0

    def _sustained_rate(self, count: int) -> float:
        one, bursts = self.capacity, self.asked.arrivals.dispersion
        return self.confidence * sustained_rate(
            one.replica, one.work, one.targets, count, one.margin, bursts, self.unevenness
        )


def predict(
    spec: LLMDeploymentSpec,
    floor: ReplicaRange,
    known: CapacityInputs,
    asked: Demand,
    memory: AutoscalerState,
    current: int,
    goal: float,
) -> Prediction:
    """Evaluate the model for this demand and `goal`, the attainment to plan for."""
    target = replace(reachable_targets(spec, known.work), attainment=goal)
    bursts, confidence, split = asked.arrivals.dispersion, memory.confidence, memory.unevenness
    share = split_burstiness(bursts, max(1, current), split)
    one = capacity(known.replica, known.work, target, MARGIN, share)
    up, reached = _enough(one, asked.expected / confidence, bursts, split)
    served, waits = _served_and_waiting(one, asked)
    up = max(up, _fewest(asked.expected * served + waits, one.throughput * confidence))
    keep, _ = _enough(one, asked.highest / confidence, bursts, split)
    return Prediction(one, asked, confidence, split, current, floor.high, up, max(up, keep), reached)


def _enough(one: Capacity, rate: float, bursts: float, split: float) -> tuple[int, float]:
    return replicas_needed(one.replica, one.work, one.targets, rate, one.margin, bursts, split)


def _served_and_waiting(one: Capacity, asked: Demand) -> tuple[float, float]:
    """Share of arrivals to serve, and the rate in requests per second at which the backlog drains beside them.

    The backlog is late in any case, so it drains at full throughput. With load shedding the rejected requests need no
    replica. A request that waits now no longer waits when a replica ordered now serves, so the backlog then drains over
    the horizon (`DRAIN` at least).
    """
    if one.replica.sheds:
        return one.targets.attainment, asked.backlog / max(DRAIN, asked.horizon)
    return 1.0, asked.backlog / DRAIN


def _fewest(rate: float, each: float) -> int:
    """Replicas that together hold `rate`; an excess of 1e-9 adds none."""
    return math.ceil(rate / each - 1e-9)
