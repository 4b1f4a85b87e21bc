"""The slow loop of admission: bounds and targets per engine, each with a time to live.

The engine's fast loop moves inside them. While replicas are on their way the upper bound is what the SLO allows by
the fleet's model, so that what was admitted is served well and the rest waits outside; when none is missing it is
relaxed and the engine's own loop decides. A replica whose own model is still cold gets the tight bound too: its
door opens as far as its sisters' experience goes, no herd rushes in.
"""

from typing import Final

from sluice_law.capacity import queue_limit, throughput, token_seconds
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide.demand import fleet_model, max_concurrency, mean_work, targets, trusted
from sluice_operator.decide.need import Need
from sluice_operator.decide.trust import Fresh
from sluice_operator.decide.values import Bounds, EngineSample, Memory

TTL: Final = 30.0  # seconds: six periods of 5 s; limits that were tightened do not outlive their reason by more


def bounds(
    spec: LLMDeploymentSpec, seen: Fresh, memory: Memory, wanted: Need, target: int
) -> tuple[tuple[str, Bounds], ...]:
    """Bounds for each engine that was measured; one that was not keeps its last until their TTL ends."""
    if spec.admission.mode == "Off":
        return ()
    tight = target > len(seen.ready)
    return tuple((pod.name, _bounds(spec, seen, memory, wanted, sample, tight)) for pod, sample in seen.known)


def _bounds(
    spec: LLMDeploymentSpec, seen: Fresh, memory: Memory, wanted: Need, sample: EngineSample, tight: bool
) -> Bounds:
    most, promised = max_concurrency(spec), targets(spec)
    least = min(spec.admission.concurrency.min, most)
    if spec.admission.mode == "Fixed":
        least = most
    elif wanted.capacity is not None and (tight or trusted(sample) is None):
        most = min(max(wanted.capacity.concurrency, least), most)
    share = spec.scaling.target_kv_occupancy_percent / 100.0
    return Bounds(
        concurrency_min=least,
        concurrency_max=most,
        max_queue=_queue(spec, seen, memory, sample, least, most),
        kv_watermark=(1.0 + share) / 2.0,  # above the scaling target, or the target could never be passed and seen
        itl_target=promised.itl,
        ttft_target=promised.ttft,
        ttl=TTL,
    )


def _queue(spec: LLMDeploymentSpec, seen: Fresh, memory: Memory, sample: EngineSample, least: int, most: int) -> int:
    """What the engine serves within maxQueueSeconds at the limit in force, by its own model or its sisters'; a full
    batch while nothing is known."""
    model, work = trusted(sample) or fleet_model(seen), mean_work(memory.lengths)
    if model is None or work is None:
        return most
    limit = min(max(sample.concurrency, least), most)
    step = token_seconds(model, work, limit)
    return queue_limit(throughput(model, work, limit), float(spec.admission.max_queue_seconds), step)
