"""What is asked of the fleet and what one replica holds of it: rates, the mean request, the engines' own physics."""

import math
from dataclasses import dataclass, replace
from typing import Final

from sluice_law.capacity import Replica, Targets, Work
from sluice_law.forecast import Nature, bearable
from sluice_law.limit import TRUSTED_STEPS
from sluice_law.steptime import StepTimeModel
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide import coldstart
from sluice_operator.decide.history import outlook
from sluice_operator.decide.trust import USUAL_GAP, Fresh
from sluice_operator.decide.values import EngineSample, Lengths, Memory
from sluice_operator.decide.windows import SHORT, WINDOW, over

ENOUGH: Final = 5.0  # requests in the lengths' memory before their mean says anything
PLANNED: Final = 0.85  # of what the load may be one cold start ahead; the queueing answers for what is shorter
HIGHEST: Final = 0.9  # the same for what scale-in must survive, for a whole stabilisation window without a break
SIGMAS: Final = 2.0  # a short count is believed as far as chance would not make it once in forty
DRAIN: Final = 30.0  # seconds in which what waits now should be worked off: one window, so that it shows in the next


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests per second, refused ones included."""

    expected: float  # what to plan for
    highest: float  # what it could be as well: scale-in must survive it
    backlog: float  # waiting now, in requests
    horizon: float  # seconds until a replica that is ordered now serves
    nature: Nature  # how the load moves
    level: float  # now


@dataclass(frozen=True, slots=True)
class Physics:
    """One replica and the mean request, as the engines report them."""

    replica: Replica
    work: Work


def demand(
    memory: Memory, seen: Fresh, now: float, patience: float = 0.0, hold: float = 0.0, ease: float = 1.0
) -> Demand:
    """What to plan for: a quantile of the forecast one cold start ahead, less what those who come can wait out in
    `patience` seconds, or more where the last seconds prove more.

    A replica that is ordered once a rise is seen serves a cold start later: until then a queue may grow. One that was
    taken away is back only after it was missed: what scale-in must survive is borne for a stabilisation window (`hold`,
    seconds) more, so that the same patience goes less far.

    An arrival count of N scatters by √(I·N), so a window speaks with its lower bound (one burst of five is no trend). The
    last seconds alone are asked only before there is any history, when the window's mean stands for the forecast:
    a burst of twenty seconds is over before a replica that is ordered for it serves."""
    horizon = (coldstart.seconds(memory) or coldstart.USUAL) + (memory.scrape_gap or USUAL_GAP)
    window, short = over(memory, now, WINDOW), over(memory, now, SHORT)
    count, recent = window.count("arrived_total"), short.count("arrived_total")
    ahead = outlook(memory, now, horizon)
    nature = memory.before if ahead is None else ahead.nature
    lower = _lower(count, window.seconds, nature)
    if ahead is None:
        lower = max(lower, _lower(recent, short.seconds, nature))
    if ahead is not None:
        level = ahead.level
        expected = bearable(ahead.quantile(eased(PLANNED, ease)), ahead.mean, horizon, patience)
        highest = bearable(ahead.quantile(eased(HIGHEST, ease)), ahead.mean, horizon + hold, patience)
    else:
        whole = window.seconds >= WINDOW - USUAL_GAP
        level = expected = window.rate("arrived_total") if whole else lower
        highest = (count + math.sqrt(count)) / window.seconds if window.seconds > 0 else 0.0
    return Demand(
        expected=max(expected, lower),
        highest=max(highest, lower),
        backlog=sum(sample.waiting for _, sample in seen.known),
        horizon=horizon,
        nature=nature,
        level=level,
    )


def eased(share: float, ease: float) -> float:
    """A quantile to plan for where `ease` times the promised misses may happen: so many times as often may the load be
    higher, as long as it is rather not."""
    return max(1.0 - ease * (1.0 - share), min(share, 0.5))


def mean_work(lengths: Lengths) -> Work | None:
    """The mean request of the last minutes; None while too few were seen. A text that is computed to a vector or a score
    counts as one token: its answer takes one step."""
    if min(lengths.finished, lengths.started) < ENOUGH:
        return None
    output, prompt = lengths.generated / lengths.finished, lengths.prompt / lengths.started
    cached = min(prompt, lengths.cached / lengths.started)
    return Work(output=max(output, 1.0), uncached=prompt - cached, cached=cached)


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


def promises(spec: LLMDeploymentSpec, work: Work) -> Targets:
    """The targets that such requests can miss: an answer of one step has nothing between two tokens."""
    return targets(spec) if work.output > 1.0 else replace(targets(spec), itl=math.inf)


def physics(spec: LLMDeploymentSpec, seen: Fresh, memory: Memory) -> Physics | None:
    """What one replica is; None while the engines' models or the requests' lengths are not known well enough."""
    model, work = fleet_model(seen), mean_work(memory.lengths)
    if model is None or work is None:
        return None
    pool = _mean([sample.kv_blocks * sample.block_size for _, sample in seen.known])
    if pool <= 0:
        return None
    most, batch = max_concurrency(spec), spec.engine.scheduling.max_batched_tokens
    if work.output <= 1.0:  # who is not in this step is not at work: no more are than a step has tokens for
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
    return Physics(replica, work)


def max_concurrency(spec: LLMDeploymentSpec) -> int:
    """The most that one replica may run at once."""
    return min(max(spec.admission.concurrency.min, spec.admission.concurrency.max), spec.engine.scheduling.max_num_seqs)


def _lower(count: float, seconds: float, nature: Nature) -> float:
    scatter = SIGMAS * math.sqrt(max(nature.dispersion, 1.0) * count)
    return max(0.0, count - scatter) / seconds if seconds > 0 else 0.0


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
