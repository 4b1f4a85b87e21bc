"""How many replicas the load needs: by the model where it is known, by what is measured where the model disagrees.

By the model it is the smallest number whose predicted attainment, the share of good requests as spec.slo counts them,
meets the target for the forecast demand.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from sluice_law.capacity import Capacity, attainment, enough, split_burstiness, sustained
from sluice_law.capacity import capacity as capacity_of
from sluice_law.limit import MARGIN
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide import budget, coldstart
from sluice_operator.decide.demand import DRAIN, Demand, demand
from sluice_operator.decide.floors import Range
from sluice_operator.decide.physics import Physics, physics, promises, targets
from sluice_operator.decide.pressure import PATIENCE, Pressure, pressure
from sluice_operator.decide.trust import Fresh
from sluice_operator.decide.values import Memory
from sluice_operator.decide.windows import WINDOW, over

LOW_KV: Final = 0.5  # of the target: without a trusted model only a plainly empty fleet shrinks
LOADED: Final = 0.5  # of what the fleet was sized to hold: from here on kept promises prove it right
LONGEST_LOOK_BACK: Final = 60.0  # seconds: a target of an hour must not silence the guard for one


@dataclass(frozen=True, slots=True)
class Need:
    """What the load asks for, before any rule about moving."""

    up: int  # fewest replicas that meet the SLO for the expected load
    keep: int  # fewest that would still do so for the highest load, with room
    binding: str
    demand: Demand
    physics: Physics | None  # of one replica; None while the model is cold
    capacity: Capacity | None  # of one replica; None where `physics` is
    predicted: tuple[float, float]  # attainment with the current count, and with `up`; 1 where nothing is predicted
    turn: float  # requests per second: up to it one fewer would do, or where the count falls, above it it would have stayed
    goal: float  # the attainment planned for, by what is left of the error budget
    pressure: Pressure | None  # what was measured against the model, if it asked for more
    hold: str = ""  # why the count must not fall, whatever `keep` says
    disproved: bool = False  # promises are missed where the model, with all replicas there, said that they are kept
    proved: bool = False  # promises are kept under a load that says something


def need(spec: LLMDeploymentSpec, floor: Range, seen: Fresh, memory: Memory, now: float, current: int) -> Need:
    """Judge the load. Without anything known, both numbers are the current count."""
    ttft = targets(spec).ttft
    stays = float(spec.scaling.scale_down_stabilization_seconds)
    promised = targets(spec).attainment
    rate = over(memory, now, WINDOW).rate("arrived_total")
    goal = budget.planned(memory.kept, promised, rate, stays + (coldstart.seconds(memory) or coldstart.USUAL))
    asked = demand(memory, seen, now, PATIENCE * ttft, stays, (1.0 - goal) / (1.0 - promised))
    if not seen.known:
        hold = "no engine could be measured" if seen.ready else "no replica is ready yet"
        return Need(current, current, "MetricsMissing", asked, None, None, (1.0, 1.0), 0.0, goal, None, hold)
    known = physics(spec, seen, memory)
    judged = _by_model(spec, floor, known, asked, memory, current, goal) if known is not None else None
    if judged is not None:
        capacity: Capacity | None = judged.capacity
        up, keep, binding, predicted = judged.up, judged.keep, str(judged.capacity.binding), judged.predicted
        turn = judged.turn
    else:
        up, keep, binding, predicted = 1, _keep_cold(spec, seen, memory, now, current), "Idle", (1.0, 1.0)
        capacity, turn = None, 0.0
    # Who is found late now came a TTFT target ago or earlier: it waited for the fleet as it was then. What the fleet
    # holds, and who waits, is seen at once.
    stood = now - memory.settled_at - WINDOW if seen.coming == 0 else -math.inf
    looked_back = stood >= min(ttft, LONGEST_LOOK_BACK)
    pressed = pressure(spec, seen, memory, now, capacity, looked_back, goal)
    settled = looked_back or (stood >= 0.0 and pressed is not None and not pressed.late)
    disproved = pressed is not None and settled and judged is not None and up <= current
    kept = pressed is None and settled
    proved = kept and judged is not None and (judged.dear or _is_loaded(seen, memory, judged.capacity, now))
    if pressed is not None:
        keep = max(keep, current)
        if settled and pressed.replicas > up:
            up, binding = pressed.replicas, pressed.binding
        else:
            pressed = None
    if max(up, keep) <= max(1, floor.low) and is_idle(seen, memory, now):
        binding = "Idle"
    hold = ""
    if seen.missing:
        hold = f"{seen.missing} of {len(seen.ready)} replicas could not be measured and count as busy"
    elif now < memory.no_down_until:
        hold = "an engine restarted and its counters began again"
    return Need(
        up, max(keep, up), binding, asked, known, capacity, predicted, turn, goal, pressed, hold, disproved, proved
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    up: int
    keep: int
    capacity: Capacity
    predicted: tuple[float, float]
    turn: float  # 0 where the count stays
    dear: bool  # a model that is believed in full would ask for fewer


def _by_model(
    spec: LLMDeploymentSpec, floor: Range, known: Physics, asked: Demand, memory: Memory, current: int, goal: float
) -> _Judged:
    """The smallest number whose predicted attainment meets the target. A model that is believed by half is asked
    about twice the load."""
    replica, work, promised = known.replica, known.work, promises(spec, known.work)
    promised = replace(promised, attainment=goal)
    bursts, here, trust, split = asked.nature.dispersion, max(1, current), memory.trust, memory.unevenness
    share = split_burstiness(bursts, here, split)
    one = capacity_of(replica, work, promised, MARGIN, share)
    up, reached = enough(replica, work, promised, asked.expected / trust, MARGIN, bursts, split)
    # What waits already is worked off flat out: it is late whatever happens, and it passes. Beside it come those who are
    # to be served. Where the door turns the rest away, no replica is needed for them, and nobody who waits now still does
    # when one that is ordered now serves: then it is worked off as fast as it passes.
    served, waits = (goal, asked.backlog / max(DRAIN, asked.horizon)) if replica.sheds else (1.0, asked.backlog / DRAIN)
    up = max(up, _fewest(asked.expected * served + waits, one.throughput * trust))
    keep, _ = enough(replica, work, promised, asked.highest / trust, MARGIN, bursts, split)
    dear = trust < 1.0 and keep > enough(replica, work, promised, asked.highest, MARGIN, bursts, split)[0]
    now = attainment(replica, work, promised, asked.expected / (trust * here), MARGIN, share)
    turn = 0.0
    if up > current:
        fewer = min(up, floor.high) - 1
        turn = trust * sustained(replica, work, promised, fewer, MARGIN, bursts, split) if fewer else 0.0
        turn = max(0.0, min(turn, (one.throughput * trust * fewer - waits) / served))
    elif max(up, keep) < current:
        turn = trust * sustained(replica, work, promised, current - 1, MARGIN, bursts, split)
    return _Judged(up, max(up, keep), one, (now, reached), turn, dear)


def _fewest(rate: float, each: float) -> int:
    """Replicas that hold `rate` together; a hair's breadth over is not one more."""
    return math.ceil(rate / each - 1e-9)


def _keep_cold(spec: LLMDeploymentSpec, seen: Fresh, memory: Memory, now: float, current: int) -> int:
    """Without a trusted model: all of it, one fewer where memory is plainly free and nobody waits, 1 when idle."""
    if is_idle(seen, memory, now):
        return 1
    occupancy = max(sample.kv_occupancy for _, sample in seen.known)
    free = occupancy < LOW_KV * spec.scaling.target_kv_occupancy_percent / 100.0
    return current - 1 if free and not any(sample.waiting for _, sample in seen.known) else current


def _is_loaded(seen: Fresh, memory: Memory, one: Capacity, now: float) -> bool:
    """Whether the fleet works at half of what it was sized to hold, or more: then kept promises prove the model. A model
    that is believed by half is given twice the replicas: each has but half of the load that it could have."""
    return over(memory, now, WINDOW).rate("finished_total") >= LOADED * one.rate * memory.trust * len(seen.ready)


def is_idle(seen: Fresh, memory: Memory, now: float) -> bool:
    """Whether nothing runs, waits or has come in the window, as far as is known."""
    busy = any(sample.running or sample.waiting for _, sample in seen.known)
    return not busy and over(memory, now, WINDOW).count("arrived_total") == 0
