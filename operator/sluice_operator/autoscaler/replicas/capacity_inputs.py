"""Inputs of the capacity model: the mean request, the engines' step-time models and the SLO targets."""

import math
from dataclasses import dataclass, replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.signals.freshness import Fresh
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import EngineSample, Lengths
from sluice_perfmodel.capacity import Replica, Targets, Work
from sluice_perfmodel.concurrency_limit import MIN_MODEL_STEPS
from sluice_perfmodel.step_time import StepTimeModel

ENOUGH: Final = 5.0  # fewest requests behind a usable mean length


@dataclass(frozen=True, slots=True)
class CapacityInputs:
    """One replica and the mean request, as the engines report them."""

    replica: Replica
    work: Work


def mean_work(lengths: Lengths) -> Work | None:
    """The mean request of the last minutes; None while too few were seen.

    An embedding, score or rerank request counts as one output token, because it takes one step.
    """
    if min(lengths.finished, lengths.started) < ENOUGH:
        return None
    output, prompt = lengths.generated / lengths.finished, lengths.prompt / lengths.started
    cached = min(prompt, lengths.cached / lengths.started)
    return Work(output=max(output, 1.0), uncached=prompt - cached, cached=cached)


def fleet_model(seen: Fresh) -> StepTimeModel | None:
    """The mean of the engines' step-time models that have seen enough steps; None where there is none."""
    models = [model for _, sample in seen.known if (model := usable_model(sample)) is not None]
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
    return model if model is not None and model.steps >= MIN_MODEL_STEPS and model.base + model.sequence > 0 else None


def targets(spec: LLMDeploymentSpec) -> Targets:
    """The targets of spec.slo, in seconds and shares."""
    return Targets(
        ttft=spec.slo.ttft_milliseconds / 1000.0,
        itl=spec.slo.itl_milliseconds / 1000.0,
        attainment=min(float(spec.slo.attainment_percent) / 100.0, 0.9999),
    )


def reachable_targets(spec: LLMDeploymentSpec, work: Work) -> Targets:
    """The targets that such requests can miss: a request of one output token has no inter-token time."""
    return targets(spec) if work.output > 1.0 else replace(targets(spec), itl=math.inf)


def capacity_inputs(spec: LLMDeploymentSpec, seen: Fresh, memory: AutoscalerState) -> CapacityInputs | None:
    """One replica and the mean request; None while models or lengths are not known well enough."""
    model, work = fleet_model(seen), mean_work(memory.lengths)
    if model is None or work is None:
        return None
    pool = _mean([sample.kv_blocks * sample.block_size for _, sample in seen.known])
    if pool <= 0:
        return None
    most, batch = max_concurrency(spec), spec.engine.scheduling.max_batched_tokens
    if work.output <= 1.0:  # such requests run for one step: its token budget bounds them
        most = max(1, min(most, int(batch / max(work.uncached, 1.0))))
    replica = Replica(
        model=model,
        kv_tokens=pool,
        kv_share=spec.scaling.target_kv_occupancy_percent / 100.0,
        max_concurrency=most,
        min_concurrency=min(spec.admission.concurrency.min, most),
        batch_tokens=batch,
        sheds=spec.admission.mode != "Off",
    )
    return CapacityInputs(replica, work)


def max_concurrency(spec: LLMDeploymentSpec) -> int:
    """The largest number of requests that one replica may run at once."""
    return min(max(spec.admission.concurrency.min, spec.admission.concurrency.max), spec.engine.scheduling.max_num_seqs)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
