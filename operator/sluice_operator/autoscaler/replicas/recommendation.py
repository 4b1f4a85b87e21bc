"""The number of replicas that the load needs: by the model where it is known, by measurements where they disagree.

`prediction` evaluates the model; this module combines it with the measurements.
"""

import math
from dataclasses import dataclass
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.replicas.bounds import ReplicaRange
from sluice_operator.autoscaler.replicas.capacity_inputs import capacity_inputs, targets
from sluice_operator.autoscaler.replicas.demand import Demand, demand
from sluice_operator.autoscaler.replicas.prediction import Prediction, predict
from sluice_operator.autoscaler.replicas.reactive import PATIENCE, ReactiveDemand, reactive_demand
from sluice_operator.autoscaler.signals import cold_start, error_budget
from sluice_operator.autoscaler.signals.freshness import Fresh
from sluice_operator.autoscaler.signals.windows import WINDOW, over
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_perfmodel.capacity import Capacity

LOW_KV: Final = 0.5  # of the target: without a usable model only a plainly empty fleet shrinks
LOADED: Final = 0.5  # of the load that the fleet was sized for: from there on a met SLO confirms the model
LONGEST_LOOK_BACK: Final = 60.0  # seconds: a TTFT target of an hour must not disable the guard for an hour


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The replicas that the load needs, before any rule about changes."""

    up: int  # fewest replicas that meet the SLO for the expected load
    keep: int  # fewest that still meet it for the highest load, with margin
    demand: Demand
    goal: float  # the attainment to plan for, by the rest of the error budget
    prediction: Prediction | None = None  # the model's recommendation; None while it is cold
    measured: str = ""  # the binding constraint by measurement; empty where the model gives it
    reactive: ReactiveDemand | None = None  # the reactive guard's result, if it asked for more
    hold: str = ""  # why the count must not fall, whatever `keep` is
    disproved: bool = False  # the SLO is missed where the model, with all replicas ready, predicted that it is met
    proved: bool = False  # the SLO is met under a load that tests the model

    @property
    def binding(self) -> str:
        """The binding constraint, as the machine-readable reason."""
        return self.measured or ("Idle" if self.prediction is None else self.prediction.capacity.binding)

    @property
    def capacity(self) -> Capacity | None:
        """Capacity of one replica; None while the model is cold."""
        return None if self.prediction is None else self.prediction.capacity


def recommend(
    spec: LLMDeploymentSpec, floor: ReplicaRange, seen: Fresh, memory: AutoscalerState, now: float, current: int
) -> Recommendation:
    """Judge the load. Without fresh metrics, `up` and `keep` are the current count."""
    ttft = targets(spec).ttft
    stays = float(spec.scaling.scale_down_stabilization_seconds)
    target = targets(spec).attainment
    rate = over(memory, now, WINDOW).rate("arrived_total")
    goal = error_budget.planned(memory.kept, target, rate, stays + (cold_start.seconds(memory) or cold_start.USUAL))
    asked = demand(memory, seen, now, PATIENCE * ttft, stays, (1.0 - goal) / (1.0 - target))
    if not seen.known:
        hold = "no engine could be measured" if seen.ready else "no replica is ready yet"
        return Recommendation(current, current, asked, goal, measured="MetricsMissing", hold=hold)
    known = capacity_inputs(spec, seen, memory)
    prediction = predict(spec, floor, known, asked, memory, current, goal) if known is not None else None
    if prediction is not None:
        capacity: Capacity | None = prediction.capacity
        up, keep, measured = prediction.up, prediction.keep, ""
    else:
        up, keep, measured, capacity = 1, _keep_cold(spec, seen, memory, now, current), "Idle", None
    # A request found late now arrived up to a TTFT target ago and waited for the fleet of that time. KV occupancy and
    # the queue describe the current fleet.
    stood = now - memory.settled_at - WINDOW if seen.coming == 0 else -math.inf
    looked_back = stood >= min(ttft, LONGEST_LOOK_BACK)
    pressed = reactive_demand(spec, seen, memory, now, capacity, looked_back, goal)
    settled = looked_back or (stood >= 0.0 and pressed is not None and not pressed.late)
    disproved = pressed is not None and settled and prediction is not None and up <= current
    kept = pressed is None and settled
    proved = kept and prediction is not None and (prediction.dear or _is_loaded(seen, memory, prediction.capacity, now))
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
    return Recommendation(up, max(keep, up), asked, goal, prediction, measured, pressed, hold, disproved, proved)


def _keep_cold(spec: LLMDeploymentSpec, seen: Fresh, memory: AutoscalerState, now: float, current: int) -> int:
    """The count to keep without a usable model.

    It is the current count, one fewer where KV memory is plainly free and no request waits, or 1 when the fleet is
    idle.
    """
    if is_idle(seen, memory, now):
        return 1
    occupancy = max(sample.kv_occupancy for _, sample in seen.known)
    free = occupancy < LOW_KV * spec.scaling.target_kv_occupancy_percent / 100.0
    return current - 1 if free and not any(sample.waiting for _, sample in seen.known) else current


def _is_loaded(seen: Fresh, memory: AutoscalerState, one: Capacity, now: float) -> bool:
    """Whether the fleet works at half of its sized load or more: an SLO that is met then confirms the model.

    At a confidence of 0.5 the fleet gets twice the replicas, and each has only half of the load that it could have.
    """
    return over(memory, now, WINDOW).rate("finished_total") >= LOADED * one.rate * memory.confidence * len(seen.ready)


def is_idle(seen: Fresh, memory: AutoscalerState, now: float) -> bool:
    """Whether no known replica has a running or waiting request and none arrived in the window."""
    busy = any(sample.running or sample.waiting for _, sample in seen.known)
    return not busy and over(memory, now, WINDOW).count("arrived_total") == 0
