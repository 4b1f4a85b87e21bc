"""What is asked of the fleet and what one replica holds of it: rates, the mean request, the engines' own physics."""

import math
from dataclasses import dataclass
from typing import Final

from sluice_law.capacity import Capacity, Replica, Targets, Work, capacity
from sluice_law.limit import MARGIN, TRUSTED_STEPS
from sluice_law.steptime import StepTimeModel
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.trust import USUAL_GAP, Fresh
from sluice_operator.decide.values import EngineSample, Lengths, Memory
from sluice_operator.decide.windows import SHORT, WINDOW, over

ENOUGH: Final = 5.0  # requests in the lengths' memory before their mean says anything
SIGMAS: Final = 2.0  # a short count is believed as far as chance would not make it once in forty
DRAIN: Final = 30.0  # seconds in which what waits now should be worked off: one window, so that it shows in the next


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests per second, refused ones included."""

    expected: float  # what to plan for
    highest: float  # what it could be as well: scale-in must survive it
    backlog: float  # waiting now, in requests


def demand(memory: Memory, seen: Fresh, now: float) -> Demand:
    """The larger of the window's mean and what the last seconds prove: an arrival count of N scatters by √N, so the
    short window speaks with a lower bound (one burst of five is no trend) and scale-in listens to the upper one."""
    window, short = over(memory, now, WINDOW), over(memory, now, SHORT)
    count, recent = window.count("arrived_total"), short.count("arrived_total")
    mean = window.rate("arrived_total") if window.seconds >= WINDOW - USUAL_GAP else _lower(count, window.seconds)
    return Demand(
        expected=max(mean, _lower(recent, short.seconds)),
        highest=(count + math.sqrt(count)) / window.seconds if window.seconds > 0 else 0.0,
        backlog=sum(sample.waiting for _, sample in seen.known),
    )


def mean_work(lengths: Lengths) -> Work | None:
    """The mean request of the last minutes; None while too few were seen."""
    if min(lengths.finished, lengths.started) < ENOUGH:
        return None
    output, prompt = lengths.generated / lengths.finished, lengths.prompt / lengths.started
    cached = min(prompt, lengths.cached / lengths.started)
    if output < 1.0:
        return None
    return Work(output=output, uncached=prompt - cached, cached=cached)


def fleet_model(seen: Fresh) -> StepTimeModel | None:
    """The mean of the engines' own step-time models that have seen enough steps."""
    models = [model for _, sample in seen.known if (model := trusted(sample)) is not None]
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


def trusted(sample: EngineSample) -> StepTimeModel | None:
    """This engine's model, once it has seen enough steps and says that work takes time."""
    model = sample.step_model
    return model if model is not None and model.steps >= TRUSTED_STEPS and model.base + model.sequence > 0 else None


def targets(spec: LLMDeploymentSpec) -> Targets:
    """spec.slo in seconds and shares."""
    return Targets(
        ttft=spec.slo.ttft_milliseconds / 1000.0,
        itl=spec.slo.itl_milliseconds / 1000.0,
        attainment=min(float(spec.slo.attainment_percent) / 100.0, 0.9999),
    )


def held_by_one(spec: LLMDeploymentSpec, seen: Fresh, memory: Memory) -> Capacity | None:
    """What one replica holds; None while the engines' models or the requests' lengths are not known well enough."""
    model, work = fleet_model(seen), mean_work(memory.lengths)
    if model is None or work is None:
        return None
    pool = _mean([sample.kv_blocks * sample.block_size for _, sample in seen.known])
    if pool <= 0:
        return None
    concurrency = spec.admission.concurrency
    replica = Replica(
        model=model,
        kv_tokens=pool,
        kv_share=spec.scaling.target_kv_occupancy_percent / 100.0,
        max_concurrency=max_concurrency(spec),
        min_concurrency=min(concurrency.min, max_concurrency(spec)),
    )
    return capacity(replica, work, targets(spec), margin=MARGIN)


def max_concurrency(spec: LLMDeploymentSpec) -> int:
    """The most that one replica may run at once."""
    return min(max(spec.admission.concurrency.min, spec.admission.concurrency.max), spec.engine.scheduling.max_num_seqs)


def _lower(count: float, seconds: float) -> float:
    return max(0.0, count - SIGMAS * math.sqrt(count)) / seconds if seconds > 0 else 0.0


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
