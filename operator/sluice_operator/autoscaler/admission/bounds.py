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
from dataclasses import dataclass

from sluice_operator.autoscaler.replicas.service_conditions import fleet_model, usable_model
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.lengths import mean_work
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.targets import max_concurrency
from sluice_operator.autoscaler.values import Bounds, EngineSample, PodView
from sluice_perfmodel.slo_limits import queue_limit
from sluice_perfmodel.step_time import StepTimeModel
from sluice_perfmodel.workload import Work, throughput, token_seconds


@dataclass(frozen=True, slots=True)
class _Common:
    """Values that are the same for every engine of the fleet."""

    least: int
    most: int
    model_limit: int | None  # n* of the model; None: not known
    tight: bool  # replicas are starting, or first tokens are overdue
    model: StepTimeModel | None  # the fleet's model, for a replica without its own
    work: Work | None
    observed_since: float | None


def engine_bounds(
    snapshot: Snapshot, model_limit: int | None, replicas_are_coming: bool, observed_since: float | None
) -> tuple[tuple[str, Bounds], ...]:
    """Bounds for each engine with a fresh sample; any other keeps its last bounds until their TTL ends.

    `model_limit` is n* of the fleet's model, None where it is not known. Replicas that were ready before
    `observed_since`, monotonic seconds, get no slow start.
    """
    admission = snapshot.spec.admission
    if admission.mode == "Off":
        return ()
    most = max_concurrency(snapshot.spec)
    fixed = admission.mode == "Fixed"
    common = _Common(
        least=most if fixed else min(admission.concurrency.min, most),
        most=most,
        model_limit=None if fixed else model_limit,
        tight=replicas_are_coming or snapshot.has_overdue_first_tokens,
        model=fleet_model(snapshot.fleet),
        work=mean_work(snapshot.signals.lengths),
        observed_since=observed_since,
    )
    return tuple((pod.name, _bounds(snapshot, common, pod, sample)) for pod, sample in snapshot.fleet.measured)


def _bounds(snapshot: Snapshot, common: _Common, pod: PodView, sample: EngineSample) -> Bounds:
    share, most = _slow_start(pod, common.observed_since, snapshot.now), common.most
    if common.model_limit is not None and (common.tight or share < 1.0 or usable_model(sample) is None):
        most = min(max(math.ceil(share * common.model_limit), common.least), most)
    return Bounds(
        concurrency_min=common.least,
        concurrency_max=most,
        max_queue=_queue(snapshot, common, sample, most),
        kv_watermark=1.0,  # the scheduler's own per-request forecast keeps the needed blocks free
        itl_target=snapshot.targets.itl,
        ttft_target=snapshot.targets.ttft,
        ttl=LAW.ttl_seconds,
    )


def _slow_start(pod: PodView, observed_since: float | None, now: float) -> float:
    """Share of n* that a replica may admit, 0..1.

    It rises over the first seconds, so that the requests queued at other replicas do not all arrive as prompts at once.
    A replica that served before the first observation gets 1.
    """
    if observed_since is None or pod.since <= observed_since:
        return 1.0
    return min(1.0, max(LAW.slow_start_share, (now - pod.since) / LAW.slow_start_seconds))


def _queue(snapshot: Snapshot, common: _Common, sample: EngineSample, most: int) -> int:
    """Requests that the engine serves within maxQueueSeconds at the limit in force; one batch while no model is known.

    The rate comes from its own model, or from the fleet's.
    """
    model, work = usable_model(sample) or common.model, common.work
    if model is None or work is None:
        return most
    limit = min(max(sample.concurrency, common.least), most)
    seconds = float(snapshot.spec.admission.max_queue_seconds)
    return queue_limit(throughput(model, work, limit), seconds, token_seconds(model, work, limit))
