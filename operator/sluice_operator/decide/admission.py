"""The slow loop of admission: bounds and targets per engine, each with a time to live.

The engine's fast loop moves inside them. While replicas are on their way the upper bound is what the SLO allows by
the fleet's model, so that what was admitted is served well and the rest waits outside; when none is missing it is
relaxed and the engine's own loop decides. A pod that no node takes, or that a quota refuses, is on its way for as long
as a cold start takes, and a minute at least: after that nothing comes that one could wait for, and the engine's own
loop holds the promise with what is there, refusing no more than it must. A replica whose own model is still cold gets
the tight bound too: its door opens as far as its sisters' experience goes, no herd rushes in. And every replica gets it
while more first tokens than promised come later than the last bucket: an engine's own loop looks at the time between
tokens and at memory, so nothing else would keep it from letting in more than the model says it can serve well.

A fleet of which no model is known yet gets the whole range that the user allowed, and a queue of one batch: a model
takes some fifty steps, and a limit below the load that makes them would only put it off.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from sluice_law.capacity import Targets, Work, queue_limit, throughput, token_seconds
from sluice_law.steptime import StepTimeModel
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide import coldstart
from sluice_operator.decide.physics import fleet_model, max_concurrency, mean_work, targets, trusted
from sluice_operator.decide.trust import Fresh
from sluice_operator.decide.values import Bounds, EngineSample, Memory, PodView
from sluice_operator.decide.windows import WINDOW, over

TTL: Final = 30.0  # seconds: six periods of 5 s; limits that were tightened do not outlive their reason by more
SLOW_START: Final = 5.0  # seconds: the router sends all that comes to the emptiest; longer, and it waits there
FIRST: Final = 0.5  # of n*, at once: a replica that admits nobody learns nothing


@dataclass(frozen=True, slots=True)
class _Common:
    """What is the same for every engine of the fleet."""

    targets: Targets
    least: int
    most: int
    held: int | None  # n* of the model; None: not known
    tight: bool  # replicas are on their way, or first tokens overdue
    model: StepTimeModel | None  # the sisters' experience, for a replica that has none of its own
    work: Work | None


def bounds(
    spec: LLMDeploymentSpec, seen: Fresh, memory: Memory, places: int | None, target: int, now: float
) -> tuple[tuple[str, Bounds], ...]:
    """Bounds for each engine that was measured; one that was not keeps its last until their TTL ends. `places`: n* of the
    fleet's model, None where it is not known; `target`: replicas that were asked for."""
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


def is_overdue(spec: LLMDeploymentSpec, memory: Memory, now: float) -> bool:
    """Whether more first tokens of the window came after the last bucket than the promise allows to be late."""
    window = over(memory, now, WINDOW)
    overdue = window.overdue
    return overdue > 0.0 and overdue > (1.0 - targets(spec).attainment) * window.ttft[-1]


def note_missing(memory: Memory, seen: Fresh, target: int, now: float) -> Memory:
    """Remember since when fewer replicas serve than are wanted without any of them being on its way."""
    if target <= len(seen.ready) or seen.coming:
        return memory if memory.short_since is None else replace(memory, short_since=None)
    return replace(memory, short_since=now) if memory.short_since is None else memory


def _will_come(memory: Memory, now: float) -> bool:
    """Whether replicas that are missing can be waited for: a node that has to be made first takes a minute too."""
    patience = max(coldstart.seconds(memory) or 0.0, coldstart.USUAL)
    return memory.short_since is None or now - memory.short_since < patience


def _bounds(
    spec: LLMDeploymentSpec, common: _Common, memory: Memory, pod: PodView, sample: EngineSample, now: float
) -> Bounds:
    opening = _opening(memory, pod, now)
    most = common.most
    if common.held is not None and (common.tight or opening < 1.0 or trusted(sample) is None):
        most = min(max(math.ceil(opening * common.held), common.least), most)
    return Bounds(
        concurrency_min=common.least,
        concurrency_max=most,
        max_queue=_queue(spec, common, sample, most),
        kv_watermark=1.0,  # the scheduler's own forecast, which knows each request, keeps what is needed free
        itl_target=common.targets.itl,
        ttft_target=common.targets.ttft,
        ttl=TTL,
    )


def _opening(memory: Memory, pod: PodView, now: float) -> float:
    """How far the door of a replica is open, 0..1: it opens over the first seconds, so that what waits elsewhere does not
    come in as one herd of prompts. One that served before we looked is open."""
    if memory.started_at is None or pod.since <= memory.started_at:
        return 1.0
    return min(1.0, max(FIRST, (now - pod.since) / SLOW_START))


def _queue(spec: LLMDeploymentSpec, common: _Common, sample: EngineSample, most: int) -> int:
    """What the engine serves within maxQueueSeconds at the limit in force, by its own model or its sisters'; a full
    batch while nothing is known."""
    model, work = trusted(sample) or common.model, common.work
    if model is None or work is None:
        return most
    limit = min(max(sample.concurrency, common.least), most)
    step = token_seconds(model, work, limit)
    return queue_limit(throughput(model, work, limit), float(spec.admission.max_queue_seconds), step)
