"""What the model says: the smallest number of replicas whose predicted attainment, the share of good requests as spec.slo
counts them, meets the target for the forecast demand.
"""

import math
from dataclasses import dataclass, replace

from sluice_law.capacity import Capacity, Targets, attainment, capacity, enough, split_burstiness, sustained
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

    known: Physics
    promised: Targets
    asked: Demand
    trust: float  # in the model: one that is believed by half is asked about twice the load
    unevenness: float
    current: int  # replicas
    most: int  # replicas that the spec allows
    capacity: Capacity  # of one replica
    up: int
    keep: int
    reached: float  # attainment with as many as the expected load alone asks for

    @property
    def dear(self) -> bool:
        """Whether a model that is believed in full would ask for fewer."""
        known, bursts = self.known, self.asked.nature.dispersion
        return self.trust < 1.0 and (
            _enough(known, self.promised, self.asked.highest / self.trust, bursts, self.unevenness)[0]
            > _enough(known, self.promised, self.asked.highest, bursts, self.unevenness)[0]
        )

    @property
    def predicted(self) -> tuple[float, float]:
        """Attainment with the current count, and with `up`."""
        known, here = self.known, max(1, self.current)
        each, share = self.asked.expected / (self.trust * here), self.capacity.burstiness
        return attainment(known.replica, known.work, self.promised, each, MARGIN, share), self.reached

    @property
    def turn(self) -> float:
        """Requests per second: up to it one fewer than `up` would do; where the count falls, above it it would have stayed.
        0 where neither is so."""
        if self.up > self.current:
            fewer = min(self.up, self.most) - 1
            served, waits = _served_and_waiting(self.known, self.asked, self.promised.attainment)
            flat_out = (self.capacity.throughput * self.trust * fewer - waits) / served
            return max(0.0, min(self._sustained(fewer) if fewer else 0.0, flat_out))
        return self._sustained(self.current - 1) if self.keep < self.current else 0.0

    def _sustained(self, count: int) -> float:
        known, bursts = self.known, self.asked.nature.dispersion
        return self.trust * sustained(known.replica, known.work, self.promised, count, MARGIN, bursts, self.unevenness)


def judge(
    spec: LLMDeploymentSpec, floor: Range, known: Physics, asked: Demand, memory: Memory, current: int, goal: float
) -> Judgement:
    """Ask the model."""
    promised = replace(promises(spec, known.work), attainment=goal)
    bursts, trust, split = asked.nature.dispersion, memory.trust, memory.unevenness
    share = split_burstiness(bursts, max(1, current), split)
    one = capacity(known.replica, known.work, promised, MARGIN, share)
    up, reached = _enough(known, promised, asked.expected / trust, bursts, split)
    served, waits = _served_and_waiting(known, asked, goal)
    up = max(up, _fewest(asked.expected * served + waits, one.throughput * trust))
    keep, _ = _enough(known, promised, asked.highest / trust, bursts, split)
    return Judgement(known, promised, asked, trust, split, current, floor.high, one, up, max(up, keep), reached)


def _enough(known: Physics, promised: Targets, rate: float, bursts: float, split: float) -> tuple[int, float]:
    return enough(known.replica, known.work, promised, rate, MARGIN, bursts, split)


def _served_and_waiting(known: Physics, asked: Demand, goal: float) -> tuple[float, float]:
    """Share of those who come that are to be served, and requests per second by which the queue is worked off beside them.

    What waits already is worked off flat out: it is late whatever happens, and it passes. Where the door turns the rest
    away, no replica is needed for them, and nobody who waits now still does when one that is ordered now serves: then it
    is worked off as fast as it passes."""
    if known.replica.sheds:
        return goal, asked.backlog / max(DRAIN, asked.horizon)
    return 1.0, asked.backlog / DRAIN


def _fewest(rate: float, each: float) -> int:
    """Replicas that hold `rate` together; a hair's breadth over is not one more."""
    return math.ceil(rate / each - 1e-9)
