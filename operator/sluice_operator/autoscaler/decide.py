"""The decision of one reconcile: gather fresh metrics, judge the load, set replicas and bounds, give reasons."""

from dataclasses import dataclass, replace
from statistics import median_low
from typing import Final, Literal

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.admission.bounds import bounds, is_overdue, note_shortage
from sluice_operator.autoscaler.admission.reporting import refusals
from sluice_operator.autoscaler.explain import sentences
from sluice_operator.autoscaler.replicas.bounds import ReplicaRange, replica_range
from sluice_operator.autoscaler.replicas.cache_warmth import cold_seconds
from sluice_operator.autoscaler.replicas.capacity_inputs import mean_work, targets
from sluice_operator.autoscaler.replicas.model_confidence import follow
from sluice_operator.autoscaler.replicas.reactive import kv_share
from sluice_operator.autoscaler.replicas.recommendation import Recommendation, recommend
from sluice_operator.autoscaler.replicas.scale_in_order import (
    NOTICE,
    choose_next_scale_in_candidate,
    scale_in_candidates,
)
from sluice_operator.autoscaler.replicas.stabilization import hold_seconds, quiet_seconds, remember, rest, step
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.fleet_view import update_signals
from sluice_operator.autoscaler.signals.freshness import Fresh
from sluice_operator.autoscaler.signals.histograms import BOUNDS, quantile
from sluice_operator.autoscaler.signals.windows import WINDOW, Sums, over
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision, ForecastStatus, Observed, Reason

WORTH_SAYING: Final = 0.2  # share: a limit that moved by a fifth is reported, a smaller move is noise
FELT: Final = 0.5  # of the limit: a fall that stays far above the running requests affects none
SAY_EVERY: Final = 15.0  # seconds between two sentences about admission


def decide(
    spec: LLMDeploymentSpec, observed: Observed, memory: AutoscalerState, now: float
) -> tuple[Decision, AutoscalerState]:
    """The decision for `now` and the memory for the next call.

    `now` is monotonic seconds. The function raises no error, whatever was observed.
    """
    seen, memory = update_signals(spec, observed, memory, now)
    memory = rest(memory, observed, seen, now)
    floor = replica_range(spec, observed, cold_start.seconds(memory) or 0.0)
    current = _current(floor, spec, observed, memory)
    wanted = recommend(spec, floor, seen, memory, now, current)
    if is_overdue(spec, memory, now) and not wanted.hold:
        wanted = replace(wanted, hold="first tokens come later than the last bucket, by an unknown amount")
    memory = follow(memory, wanted.disproved, wanted.proved, now)
    dial = _replicas(spec, floor, observed, seen, memory, wanted, now)
    # Advice creates no pods: missing replicas are counted against the number that is really set.
    ordered = (observed.replicas or 0) if dial.replicas is None else dial.replicas
    memory = note_shortage(dial.memory, seen, ordered, now)
    limit, reasons, memory = _admission(spec, seen, memory, wanted, now)
    refused, memory = refusals(spec, seen, memory, wanted, limit, ordered, now)
    reasons = (*reasons, *refused)
    places = None if wanted.capacity is None else wanted.capacity.concurrency
    admitted = () if spec.paused else bounds(spec, seen, memory, places, ordered, now)
    names = {pod.name for pod in seen.ready}
    limits = {name: value for name, value in memory.limits if name in names}
    limits |= {name: value.concurrency_max for name, value in admitted}
    memory = replace(memory, limits=tuple(sorted(limits.items())))
    window = over(memory, now, WINDOW)
    share = targets(spec).attainment
    decision = Decision(
        replicas=None if spec.paused else dial.replicas,
        desired=dial.desired,
        bounds=admitted,
        scale_in_candidates=scale_in_candidates(observed, memory, (observed.replicas or 0) - dial.replicas)
        if dial.replicas is not None
        else (),
        next_scale_in_candidate=None if spec.paused else dial.memory.next_scale_in_candidate,
        reasons=() if spec.paused else (*dial.reasons, *reasons),
        kv_occupancy=kv_share(seen, memory, now),
        ttft=_finite(quantile(window.ttft, share)),
        itl=_finite(quantile(window.itl, share)),
        attainment=_attainment(window),
        concurrency=limit,
        cold_start=cold_start.usual(memory),
        retry_after=cold_start.remaining(memory, seen, now),
        forecast=_outlook(wanted, memory),
        metrics=_metrics(seen, window),
    )
    return decision, memory


@dataclass(frozen=True, slots=True)
class _Dial:
    """The result of the replicas dial."""

    replicas: int | None
    desired: int
    memory: AutoscalerState
    reasons: tuple[Reason, ...] = ()


def _current(floor: ReplicaRange, spec: LLMDeploymentSpec, observed: Observed, memory: AutoscalerState) -> int:
    """The count that the law starts from. Mode Advise starts from its own last advice, which is not carried out."""
    if spec.scaling.mode == "Advise" and memory.advised is not None:
        return memory.advised
    return max(1, floor.low) if observed.replicas is None else observed.replicas


def _replicas(
    spec: LLMDeploymentSpec,
    floor: ReplicaRange,
    observed: Observed,
    seen: Fresh,
    memory: AutoscalerState,
    wanted: Recommendation,
    now: float,
) -> _Dial:
    mode, current = spec.scaling.mode, _current(floor, spec, observed, memory)
    if mode in ("External", "Off"):
        moved = () if observed.replicas == spec.replicas else (sentences.followed(current, spec.replicas, mode),)
        if observed.replicas is None:
            moved = (sentences.created(floor, spec.replicas, mode),)
        return _once(_Dial(spec.replicas, spec.replicas, replace(memory, last_set=None, advised=None), moved))
    if observed.replicas is None:
        return _once(_Dial(current, current, memory, (sentences.created(floor, current, mode),)))
    cold = cold_seconds(wanted, seen, memory, now)
    window = hold_seconds(spec, memory, cold)
    memory = remember(floor, memory, wanted, now, current, window)
    falls = mode == "Auto" and current > max(floor.low, 1) and not wanted.hold and not seen.coming
    quiet = falls and quiet_seconds(memory, current, now) >= NOTICE * window
    memory = choose_next_scale_in_candidate(observed, memory, quiet and cold > 0.0)
    waiting = observed.held or 0
    after = (
        1 if waiting and floor.inside(current) == 0 else step(spec, floor, seen, memory, wanted, now, current, window)
    )
    if after < current:
        memory = replace(memory, down_at=now)
    reasons: tuple[Reason, ...] = ()
    if mode == "Auto" and memory.last_set is not None and observed.replicas != memory.last_set:
        reasons = (sentences.taken_over(memory.last_set, observed.replicas),)
    if after != current:
        cold = cold_start.seconds(memory) or cold_start.USUAL
        if not floor.low <= current <= floor.high:
            why = sentences.bounded(floor, current, after)
        elif current == 0:
            why = sentences.woken(after, waiting, cold)
        elif after == 0:
            why = sentences.asleep(spec, cold)
        else:
            why = sentences.scaled(spec, wanted, current, after, window)
        reasons = (*reasons, why)
    if mode == "Advise":
        advice = tuple(sentences.advised(reason) for reason in reasons)
        return _once(_Dial(None, after, replace(memory, last_set=None, advised=after), advice))
    # A set count is remembered once it is observed in force: until then an older count is our own lag.
    in_force = current if after == current else None
    return _once(_Dial(after, after, replace(memory, last_set=in_force, advised=None), reasons))


def _once(dial: _Dial) -> _Dial:
    """Report a move once, although each call decides it again until it is in force."""
    if not dial.reasons:
        return dial if dial.memory.said is None else replace(dial, memory=replace(dial.memory, said=None))
    newest = (dial.reasons[-1].before, dial.reasons[-1].after)
    reasons = () if dial.memory.said == newest else dial.reasons
    return replace(dial, memory=replace(dial.memory, said=newest), reasons=reasons)


def _admission(
    spec: LLMDeploymentSpec, seen: Fresh, memory: AutoscalerState, wanted: Recommendation, now: float
) -> tuple[int | None, tuple[Reason, ...], AutoscalerState]:
    """The limit in force (the fleet's median), and a sentence when it moved enough to matter to requests."""
    if not seen.known:
        return None, (), memory
    limit = int(median_low([sample.concurrency for _, sample in seen.known]))
    if memory.limit_said is None:
        return limit, (), memory if wanted.capacity is None else replace(memory, limit_said=(now, limit))
    at, before = memory.limit_said
    if now - at < SAY_EVERY or abs(limit - before) < max(1.0, WORTH_SAYING * before):
        return limit, (), memory
    fell = limit < before
    if fell and max(sample.running for _, sample in seen.known) < FELT * limit:
        return limit, (), memory
    said = replace(memory, limit_said=(now, limit), limit_fell=fell)
    if (not fell and not memory.limit_fell) or spec.admission.mode == "Off":
        return limit, (), said
    bound = min((value for _, value in memory.limits), default=0)
    if limit >= bound:
        binding = "TimeToFirstToken" if fell and is_overdue(spec, memory, now) else "Bounds"
    elif wanted.capacity is not None and wanted.capacity.binding == "KVOccupancy":
        binding = "KVOccupancy"
    else:
        binding = "InterTokenLatency"
    itl = _mean_itl(over(memory, now, SAY_EVERY))
    return limit, (sentences.readmitted(spec, wanted, before, limit, itl, binding),), said


def _mean_itl(window: Sums) -> float | None:
    """The mean inter-token time by bucket midpoints, in seconds: accurate enough for a sentence."""
    counts = window.itl
    if not counts or counts[-1] <= 0:
        return None
    total, low, below = 0.0, 0.0, 0.0
    for bound, count in zip(BOUNDS[:-1], counts, strict=False):
        total += (count - below) * (low + bound) / 2.0
        low, below = bound, count
    return (total + (counts[-1] - below) * low) / counts[-1]


def _attainment(window: Sums) -> float | None:
    """Share of good requests among those of the window that ended, were rejected or are already late."""
    seen = window.outcome
    return seen.met / (seen.met + seen.missed) if seen.met + seen.missed > 0 else None


def _finite(seconds: float | None) -> float | None:
    """Cap at the last finite bucket bound: the status cannot hold infinity."""
    return None if seconds is None else min(seconds, BOUNDS[-2])


def _outlook(wanted: Recommendation, memory: AutoscalerState) -> ForecastStatus | None:
    """The estimates that the status keeps over a restart; None while no engine is measured."""
    if wanted.measured == "MetricsMissing":
        return None
    asked, work = wanted.demand, mean_work(memory.lengths)
    return ForecastStatus(
        rate=asked.level,
        planned=asked.expected,
        dispersion=asked.arrivals.dispersion,
        volatility=asked.arrivals.volatility,
        output_tokens=work.output if work else 0.0,
        prompt_tokens=work.uncached + work.cached if work else 0.0,
        cached_tokens=work.cached if work else 0.0,
        confidence=memory.confidence,
    )


def _metrics(seen: Fresh, window: Sums) -> Literal["Fresh", "Partial", "Stale", "NoTraffic", "NoPods"]:
    if not seen.ready:
        return "NoPods"
    if not seen.known:
        return "Stale"
    if seen.missing:
        return "Partial"
    busy = any(sample.running or sample.waiting for _, sample in seen.known)
    return "Fresh" if busy or window.count("arrived_total") or window.count("finished_total") else "NoTraffic"
