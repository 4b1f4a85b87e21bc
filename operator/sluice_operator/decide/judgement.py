"""What the model says: the smallest number of replicas whose predicted attainment, the share of good requests as spec.slo
counts them, meets the target for the forecast demand.
"""

import math
from dataclasses import dataclass, replace

from sluice_law.capacity import Capacity, attainment, capacity, enough, split_burstiness, sustained
from sluice_law.limit import MARGIN
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.demand import DRAIN, Demand
from sluice_operator.decide.floors import Range
from sluice_operator.decide.physics import Physics, promises
from sluice_operator.decide.values import Memory


@dataclass(frozen=True, slots=True)
class Judgement:
    """How many replicas, and, for whoever asks, why: most decisions say nothing, so what only a sentence tells is worked
    out when one does."""

    capacity: Capacity  # of one replica; and what was asked about it: the mean request and the promise
    asked: Demand
    trust: float  # in the model: one that is believed by half is asked about twice the load
    unevenness: float
    current: int  # replicas
    most: int  # replicas that the spec allows
    up: int
    keep: int
    reached: float  # attainment with as many as the expected load alone asks for

    @property
    def dear(self) -> bool:
        """Whether a model that is believed in full would ask for fewer."""
        if self.trust >= 1.0:
            return False
        one, highest, bursts = self.capacity, self.asked.highest, self.asked.nature.dispersion
        believed, full = (_enough(one, highest / trust, bursts, self.unevenness)[0] for trust in (self.trust, 1.0))
        return believed > full

    @property
    def predicted(self) -> tuple[float, float]:
        """Attainment with the current count, and with `up`."""
        one, each = self.capacity, self.asked.expected / (self.trust * max(1, self.current))
        return attainment(one.replica, one.work, one.targets, each, one.margin, one.burstiness), self.reached

    @property
    def turn(self) -> float:
        """Requests per second: up to it one fewer than `up` would do; where the count falls, above it it would have stayed.
        0 where neither is so."""
        if self.up > self.current:
            fewer = min(self.up, self.most) - 1
            served, waits = _served_and_waiting(self.capacity, self.asked)
            flat_out = (self.capacity.throughput * self.trust * fewer - waits) / served
            return max(0.0, min(self._sustained(fewer) if fewer else 0.0, flat_out))
        return self._sustained(self.current - 1) if self.keep < self.current else 0.0

    def _sustained(self, count: int) -> float:
        one, bursts = self.capacity, self.asked.nature.dispersion
        return self.trust * sustained(one.replica, one.work, one.targets, count, one.margin, bursts, self.unevenness)


def judge(
    spec: LLMDeploymentSpec, floor: Range, known: Physics, asked: Demand, memory: Memory, current: int, goal: float
) -> Judgement:
    """Ask the model."""
    promised = replace(promises(spec, known.work), attainment=goal)
    bursts, trust, split = asked.nature.dispersion, memory.trust, memory.unevenness
    share = split_burstiness(bursts, max(1, current), split)
    one = capacity(known.replica, known.work, promised, MARGIN, share)
    up, reached = _enough(one, asked.expected / trust, bursts, split)
    served, waits = _served_and_waiting(one, asked)
    up = max(up, _fewest(asked.expected * served + waits, one.throughput * trust))
    keep, _ = _enough(one, asked.highest / trust, bursts, split)
    return Judgement(one, asked, trust, split, current, floor.high, up, max(up, keep), reached)


def _enough(one: Capacity, rate: float, bursts: float, split: float) -> tuple[int, float]:
    return enough(one.replica, one.work, one.targets, rate, one.margin, bursts, split)


def _served_and_waiting(one: Capacity, asked: Demand) -> tuple[float, float]:
    """Share of those who come that are to be served, and requests per second by which the queue is worked off beside them.

    What waits already is worked off flat out: it is late whatever happens, and it passes. Where the door turns the rest
    away, no replica is needed for them, and nobody who waits now still does when one that is ordered now serves: then it
    is worked off as fast as it passes."""
    if one.replica.sheds:
        return one.targets.attainment, asked.backlog / max(DRAIN, asked.horizon)
    return 1.0, asked.backlog / DRAIN


def _fewest(rate: float, each: float) -> int:
    """Replicas that hold `rate` together; a hair's breadth over is not one more."""
    return math.ceil(rate / each - 1e-9)
