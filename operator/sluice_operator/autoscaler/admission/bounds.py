"""The slow admission loop: bounds and targets per engine, each with a time to live.

The engine's fast loop moves the limit inside the bounds. While replicas are missing the upper bound is n* of the
fleet's model, so that admitted requests meet the SLO and the others wait. When none is missing the bound
is relaxed and the engine's own loop decides. An unschedulable pod, or one refused by a quota, counts as starting for
one cold start and at least a minute. After that no capacity is expected, and the engine's own loop keeps the SLO with
the existing replicas and rejects no more than necessary.

A replica gets the tight bound too until it has its own model: its limit is n* from the other replicas' model (slow
start). Every replica gets it while more first tokens than the target allows come later than the last bucket. An
engine's own loop uses inter-token times and memory only, so no other rule would keep it from admitting more than the
model allows.

A fleet without any model gets the whole range of the spec and a queue of one batch: a model needs some fifty steps, and
a limit below the load that produces them would delay it.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.replicas.capacity_inputs import (
    fleet_model,
    max_concurrency,
    mean_work,
    targets,
    usable_model,
)
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.freshness import Fresh
from sluice_operator.autoscaler.signals.windows import WINDOW, over
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Bounds, EngineSample, PodView
from sluice_perfmodel.capacity import Targets, Work, queue_limit, throughput, token_seconds
from sluice_perfmodel.step_time import StepTimeModel

TTL: Final = 30.0  # seconds: six periods of 5 s; a tightened limit outlives its reason by no more
SLOW_START: Final = 5.0  # seconds: the router sends all requests to the emptiest; a longer start queues them there
FIRST: Final = 0.5  # of n*, at once: a replica without requests gets no measurements for its model


@dataclass(frozen=True, slots=True)
class _Common:
    """Values that are the same for every engine of the fleet."""

    targets: Targets
    least: int
    most: int
    held: int | None  # n* of the model; None: not known
    tight: bool  # replicas are starting, or first tokens are overdue
    model: StepTimeModel | None  # the fleet's model, for a replica without its own
    work: Work | None


def bounds(
    spec: LLMDeploymentSpec, seen: Fresh, memory: AutoscalerState, places: int | None, target: int, now: float
) -> tuple[tuple[str, Bounds], ...]:
    """Bounds for each engine with a fresh sample; any other keeps its last bounds until their TTL ends.

    `places` is n* of the fleet's model, None where it is not known. `target` is the number of replicas that is set.
    """
    if spec.admission.mode == "Off":
        return ()
    most = max_concurrency(spec)
    common = _Common(
        targets=targets(spec),
        least=most if spec.admission.mode == "Fixed" else min(spec.admission.concurrency.min, most),
        most=most,
        held=None if spec.admission.mode == "Fixed" else places,
        tight=(target > len(seen.ready) and _will_come(memory, now)) or is_overdue(spec, memory, now),
        model=fleet_model(seen),
        work=mean_work(memory.lengths),
    )
    return tuple((pod.name, _bounds(spec, common, memory, pod, sample, now)) for pod, sample in seen.known)


def is_overdue(spec: LLMDeploymentSpec, memory: AutoscalerState, now: float) -> bool:
    """Whether more of the window's first tokens came after the last bucket than the SLO target allows to be late."""
    window = over(memory, now, WINDOW)
    overdue = window.overdue
    return overdue > 0.0 and overdue > (1.0 - targets(spec).attainment) * window.ttft[-1]


def note_shortage(memory: AutoscalerState, seen: Fresh, target: int, now: float) -> AutoscalerState:
    """Note since when fewer replicas serve than are set while none of them is starting."""
    if target <= len(seen.ready) or seen.coming:
        return memory if memory.short_since is None else replace(memory, short_since=None)
    return replace(memory, short_since=now) if memory.short_since is None else memory


def _will_come(memory: AutoscalerState, now: float) -> bool:
    """Whether missing replicas are still expected: a node that must be created first also takes a minute."""
    patience = max(cold_start.seconds(memory) or 0.0, cold_start.USUAL)
    return memory.short_since is None or now - memory.short_since < patience


def _bounds(
    spec: LLMDeploymentSpec, common: _Common, memory: AutoscalerState, pod: PodView, sample: EngineSample, now: float
) -> Bounds:
    opening = _opening(memory, pod, now)
    most = common.most
    if common.held is not None and (common.tight or opening < 1.0 or usable_model(sample) is None):
        most = min(max(math.ceil(opening * common.held), common.least), most)
    return Bounds(
        concurrency_min=common.least,
        concurrency_max=most,
        max_queue=_queue(spec, common, sample, most),
        kv_watermark=1.0,  # the scheduler's own per-request forecast keeps the needed blocks free
        itl_target=common.targets.itl,
        ttft_target=common.targets.ttft,
        ttl=TTL,
    )


def _opening(memory: AutoscalerState, pod: PodView, now: float) -> float:
    """Share of n* that a replica may admit, 0..1.

    It rises over the first seconds, so that the requests queued at other replicas do not all arrive as prompts at once.
    A replica that served before the first observation gets 1.
    """
    if memory.started_at is None or pod.since <= memory.started_at:
        return 1.0
    return min(1.0, max(FIRST, (now - pod.since) / SLOW_START))


def _queue(spec: LLMDeploymentSpec, common: _Common, sample: EngineSample, most: int) -> int:
    """Requests that the engine serves within maxQueueSeconds at the limit in force; one batch while no model is known.

    The rate comes from its own model, or from the fleet's.
    """
    model, work = usable_model(sample) or common.model, common.work
    if model is None or work is None:
        return most
    limit = min(max(sample.concurrency, common.least), most)
    step = token_seconds(model, work, limit)
    return queue_limit(throughput(model, work, limit), float(spec.admission.max_queue_seconds), step)
