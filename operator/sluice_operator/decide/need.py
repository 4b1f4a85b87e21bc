"""How many replicas the load needs: by the model where it is known, by what is measured where the model disagrees.

What the model says is in `judgement`; here it stands beside what was measured.
"""

import math
from dataclasses import dataclass
from typing import Final

from sluice_law.capacity import Capacity
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide import budget, coldstart
from sluice_operator.decide.demand import Demand, demand
from sluice_operator.decide.floors import Range
from sluice_operator.decide.judgement import Judgement, judge
from sluice_operator.decide.physics import physics, targets
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
    demand: Demand
    goal: float  # the attainment planned for, by what is left of the error budget
    judged: Judgement | None = None  # what the model says; None while it is cold
    measured: str = ""  # what binds by measurement; empty where the model says it
    pressure: Pressure | None = None  # what was measured against the model, if it asked for more
    hold: str = ""  # why the count must not fall, whatever `keep` says
    disproved: bool = False  # promises are missed where the model, with all replicas there, said that they are kept
    proved: bool = False  # promises are kept under a load that says something

    @property
    def binding(self) -> str:
        """What binds: the reason's one word."""
        return self.measured or ("Idle" if self.judged is None else self.judged.capacity.binding)

    @property
    def capacity(self) -> Capacity | None:
        """Of one replica; None while the model is cold."""
        return None if self.judged is None else self.judged.capacity


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
        return Need(current, current, asked, goal, measured="MetricsMissing", hold=hold)
    known = physics(spec, seen, memory)
    judged = judge(spec, floor, known, asked, memory, current, goal) if known is not None else None
    if judged is not None:
        capacity: Capacity | None = judged.capacity
        up, keep, measured = judged.up, judged.keep, ""
    else:
        up, keep, measured, capacity = 1, _keep_cold(spec, seen, memory, now, current), "Idle", None
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
            up, measured = pressed.replicas, pressed.binding
        else:
            pressed = None
    if max(up, keep) <= max(1, floor.low) and is_idle(seen, memory, now):
        measured = "Idle"
    hold = ""
    if seen.missing:
        hold = f"{seen.missing} of {len(seen.ready)} replicas could not be measured and count as busy"
    elif now < memory.no_down_until:
        hold = "an engine restarted and its counters began again"
    return Need(up, max(keep, up), asked, goal, judged, measured, pressed, hold, disproved, proved)


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
