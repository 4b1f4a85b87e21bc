"""Inputs of the performance model: the mean request, the engines' step-time models and the SLO targets."""

import math
from dataclasses import replace

from sluice_operator.autoscaler.signals.freshness import FleetMetrics
from sluice_operator.autoscaler.signals.lengths import mean_work
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.targets import max_concurrency, reachable_targets
from sluice_operator.autoscaler.values import EngineSample
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.slo_limits import Replica, ServiceConditions, slo_concurrency
from sluice_perfmodel.step_time import StepTimeModel


def service_conditions(snapshot: Snapshot) -> ServiceConditions | None:
    """One replica, the mean request and the targets that it can miss; None while models or lengths are not known."""
    spec, measured = snapshot.spec, snapshot.fleet.measured
    model, work = fleet_model(snapshot.fleet), mean_work(snapshot.signals.lengths)
    if model is None or work is None:
        return None
    pool = _mean([sample.kv_blocks * sample.block_size for _, sample in measured])
    if pool <= 0:
        return None
    most = max_concurrency(spec)
    if work.output <= 1.0:  # such requests run for one step: its token budget bounds them
        most = max(1, min(most, int(spec.engine.scheduling.max_batched_tokens / max(work.uncached, 1.0))))
    replica = Replica(
        model=model,
        kv_tokens=pool,
        max_concurrency=most,
        min_concurrency=min(spec.admission.concurrency.min, most),
    )
    return ServiceConditions(replica, work, reachable_targets(spec, work), PERFMODEL.limit.margin)


def memory_binds(conditions: ServiceConditions) -> bool:
    """Whether more KV memory alone would let a replica run more requests at once."""
    roomier = replace(conditions, replica=replace(conditions.replica, kv_tokens=2.0 * conditions.replica.kv_tokens))
    return slo_concurrency(roomier) > slo_concurrency(conditions)


def fleet_model(fleet: FleetMetrics) -> StepTimeModel | None:
    """The mean of the engines' step-time models that have seen enough steps; None where there is none."""
    models = [model for _, sample in fleet.measured if (model := usable_model(sample)) is not None]
    if not models:
        return None
    return StepTimeModel(
        base=_mean([model.base for model in models]),
        prefill_token=_mean([model.prefill_token for model in models]),
        prefill_context=_mean([model.prefill_context for model in models]),
        sequence=_mean([model.sequence for model in models]),
        kv_token=_mean([model.kv_token for model in models]),
        error_ratio=_mean([model.error_ratio for model in models]),
        steps=min(model.steps for model in models),
    )


def usable_model(sample: EngineSample) -> StepTimeModel | None:
    """This engine's model, once it has seen enough steps and its step time is above 0; None before."""
    model = sample.step_model
    return (
        model
        if model is not None and model.steps >= PERFMODEL.limit.least_model_steps and model.base + model.sequence > 0
        else None
    )


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
