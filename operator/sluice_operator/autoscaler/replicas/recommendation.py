"""The number of replicas that the load needs: by the model where it is known, by measurements where they disagree.

`prediction` evaluates the model; this module combines it with the measurements.
"""

import math
from dataclasses import dataclass

from sluice_operator.autoscaler.replicas.demand import Demand, measure_demand
from sluice_operator.autoscaler.replicas.prediction import FleetAssumptions, Prediction, predict
from sluice_operator.autoscaler.replicas.reactive import ReactiveDemand, reactive_demand
from sluice_operator.autoscaler.replicas.replica_range import ReplicaRange
from sluice_operator.autoscaler.replicas.service_conditions import service_conditions
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals import cold_start, error_budget
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_perfmodel.capacity import Capacity


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The replicas that the load needs, before any rule about changes."""

    current: int  # replicas that the recommendation starts from
    allowed: ReplicaRange
    scale_out_to: int  # fewest replicas that meet the SLO for the expected load
    scale_in_floor: int  # fewest that still meet it for the highest load, with margin
    demand: Demand
    planned_attainment: float  # by the rest of the error budget
    prediction: Prediction | None = None  # the model's recommendation; None while it is cold
    measured_binding: str = ""  # the binding constraint by measurement; empty where the model gives it
    reactive: ReactiveDemand | None = None  # the reactive guard's result, if it asked for more
    hold: str = ""  # why the count must not fall, whatever the floor is
    contradicts_model: bool = False  # the SLO is missed where the model, with all replicas ready, predicts it is met
    confirms_model: bool = False  # the SLO is met under a load that tests the model

    @property
    def binding(self) -> str:
        """The binding constraint, as the machine-readable reason."""
        return self.measured_binding or ("Idle" if self.capacity is None else self.capacity.binding)

    @property
    def capacity(self) -> Capacity | None:
        """Capacity of one replica; None while the model is cold."""
        return None if self.prediction is None else self.prediction.capacity


def recommend(snapshot: Snapshot, allowed: ReplicaRange, confidence: float, current: int) -> Recommendation:
    """Recommend a number of replicas for this load. Without fresh metrics it is the current count."""
    planned, demand = _plan(snapshot)
    if not snapshot.fleet.measured:
        why = "no engine could be measured" if snapshot.fleet.ready else "no replica is ready yet"
        return Recommendation(
            current, allowed, current, current, demand, planned, measured_binding="MetricsMissing", hold=why
        )
    conditions = service_conditions(snapshot)
    assumed = FleetAssumptions(current, allowed.high, confidence, snapshot.signals.balance.unevenness)
    prediction = None if conditions is None else predict(conditions, demand, assumed, planned)
    if prediction is not None:
        capacity: Capacity | None = prediction.capacity
        out, floor, binding = prediction.scale_out_to, prediction.scale_in_floor, ""
    else:
        capacity, out, floor, binding = None, 1, _floor_without_model(snapshot, current), "Idle"
    age = _fleet_age(snapshot)
    covers_misses = age >= min(snapshot.targets.ttft, LAW.replicas.longest_look_back_seconds)
    reactive = reactive_demand(snapshot, capacity, planned, covers_misses)
    settled = covers_misses or (age >= 0.0 and reactive is not None and not reactive.of_ended_requests)
    contradicts = reactive is not None and settled and prediction is not None and out <= current
    confirms = reactive is None and settled and prediction is not None and _tests_model(snapshot, prediction)
    if reactive is not None:
        floor = max(floor, current)
        if settled and reactive.replicas > out:
            out, binding = reactive.replicas, reactive.binding
        else:
            reactive = None
    if max(out, floor) <= max(1, allowed.low) and snapshot.is_idle:
        binding = "Idle"
    return Recommendation(
        current=current,
        allowed=allowed,
        scale_out_to=out,
        scale_in_floor=max(floor, out),
        demand=demand,
        planned_attainment=planned,
        prediction=prediction,
        measured_binding=binding,
        reactive=reactive,
        hold=_hold(snapshot),
        contradicts_model=contradicts,
        confirms_model=confirms,
    )


def _plan(snapshot: Snapshot) -> tuple[float, Demand]:
    """The attainment to plan for, by the error budget, and the demand that such a plan must serve."""
    target = snapshot.targets.attainment
    window = float(snapshot.spec.scaling.scale_down_stabilization_seconds)
    planned = error_budget.planned_attainment(
        snapshot.signals.errors,
        target,
        snapshot.window.rate("arrived_total"),
        window + cold_start.expected_seconds(snapshot.signals.cold_starts),
    )
    return planned, measure_demand(snapshot, (1.0 - planned) / (1.0 - target))


def _fleet_age(snapshot: Snapshot) -> float:
    """Seconds since the window holds only measurements of the present fleet; below 0 while it does not.

    A request found late now arrived up to a TTFT target ago and waited for the fleet of that time. KV occupancy and the
    queue describe the present fleet.
    """
    if snapshot.fleet.starting:
        return -math.inf
    return snapshot.now - snapshot.signals.ready.changed_at - LAW.signals.window_seconds


def _floor_without_model(snapshot: Snapshot, current: int) -> int:
    """The count to keep without a usable model.

    It is the current count, one fewer where KV memory is plainly free and no request waits, or 1 when the fleet is
    idle.
    """
    if snapshot.is_idle:
        return 1
    occupancy = max(sample.kv_occupancy for _, sample in snapshot.fleet.measured)
    free = occupancy < LAW.replicas.free_kv * snapshot.spec.scaling.target_kv_occupancy_percent / 100.0
    return current - 1 if free and not snapshot.fleet.waiting else current


def _tests_model(snapshot: Snapshot, prediction: Prediction) -> bool:
    """Whether an SLO that is met now confirms the model.

    It does where the lower confidence costs replicas, and where the fleet works at half of its sized load or more. At a
    confidence of 0.5 the fleet gets twice the replicas, and each has only half of the load that it could have.
    """
    if prediction.confidence_adds_replicas:
        return True
    confidence, ready = prediction.fleet.confidence, len(snapshot.fleet.ready)
    sized = LAW.replicas.confirming_load * prediction.capacity.rate * confidence * ready
    return snapshot.window.rate("finished_total") >= sized


def _hold(snapshot: Snapshot) -> str:
    """Why the count must not fall; empty where it may."""
    fleet = snapshot.fleet
    if fleet.unmeasured:
        return f"{fleet.unmeasured} of {len(fleet.ready)} replicas could not be measured and count as busy"
    if snapshot.now < snapshot.signals.window.reset_until:
        return "an engine restarted and its counters began again"
    if snapshot.has_overdue_first_tokens:
        return "first tokens come later than the last bucket, by an unknown amount"
    return ""
