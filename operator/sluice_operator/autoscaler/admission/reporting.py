"""Reports of the admission dial: a limit that changed enough to matter to requests, and rejected requests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median_low

from sluice_operator.autoscaler.explain import admission as explain
from sluice_operator.autoscaler.replicas.need import Need
from sluice_operator.autoscaler.replicas.service_conditions import memory_binds
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.histograms import BOUNDS
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.signals.windows import window_sums
from sluice_operator.autoscaler.values import Bounds, Reason


@dataclass(frozen=True, slots=True)
class AdmissionState:
    """The bounds that were set and the reports that were made."""

    least_bound: int = 0  # the lowest concurrency_max that an engine was sent last
    reported_limit: tuple[float, int] | None = None  # (when, concurrency) that the next report starts from
    reported_fall: bool = False  # the newest such report was about a fall: only then is a rise reported
    rejections_reported_at: float | None = None  # None: never


def limit_in_force(snapshot: Snapshot) -> int | None:
    """The fleet's median concurrency limit; None while no engine is measured."""
    measured = snapshot.fleet.measured
    return int(median_low([sample.concurrency for _, sample in measured])) if measured else None


def report_limit(snapshot: Snapshot, need: Need, state: AdmissionState) -> tuple[tuple[Reason, ...], AdmissionState]:
    """The reason of a change of the limit in force, where it moved enough to matter to requests."""
    now, limit = snapshot.now, limit_in_force(snapshot)
    if limit is None:
        return (), state
    if state.reported_limit is None:
        return (), state if need.conditions is None else replace(state, reported_limit=(now, limit))
    at, before = state.reported_limit
    if now - at < LAW.slot_seconds or abs(limit - before) < max(1.0, LAW.reported_change * before):
        return (), state
    fell = limit < before
    running = max(sample.running for _, sample in snapshot.fleet.measured)
    if fell and running < limit / 2.0:  # it affects no request
        return (), state
    reported = replace(state, reported_limit=(now, limit), reported_fall=fell)
    if (not fell and not state.reported_fall) or snapshot.spec.admission.mode == "Off":
        return (), reported
    binding = _binding(snapshot, need, state, limit, fell)
    itl = _mean_itl(window_sums(snapshot.signals.window, now, LAW.slot_seconds).itl)
    return (explain.limit_changed(snapshot, need, (before, limit), itl, binding),), reported


def report_rejections(
    snapshot: Snapshot, need: Need, state: AdmissionState, ordered: int
) -> tuple[tuple[Reason, ...], AdmissionState]:
    """The reason of rejections: one when they begin, and one per interval while they recur.

    Any reason that an engine counts is included (`sluice_rejections_total`). `ordered` replicas are set now.
    """
    limit, now = limit_in_force(snapshot), snapshot.now
    count = snapshot.window.outcome.rejected  # requests that another replica served were not rejected
    if limit is None or count < 1.0:
        return (), state
    last = state.rejections_reported_at
    if last is not None and now - last < LAW.trend_seconds:
        return (), state
    coming = cold_start.remaining_seconds(snapshot.signals.cold_starts, snapshot.fleet, now)
    why = explain.requests_rejected(snapshot, need, limit, coming, ordered)
    return (why,), replace(state, rejections_reported_at=now)


def record_bounds(state: AdmissionState, bounds: Sequence[tuple[str, Bounds]]) -> AdmissionState:
    """Keep the lowest upper bound that an engine was sent last."""
    return replace(state, least_bound=min((one.concurrency_max for _, one in bounds), default=state.least_bound))


def _binding(snapshot: Snapshot, need: Need, state: AdmissionState, limit: int, fell: bool) -> str:
    """What holds the limit where it is."""
    if limit >= state.least_bound:
        return "TimeToFirstToken" if fell and snapshot.has_overdue_first_tokens else "Bounds"
    return "KVOccupancy" if need.conditions is not None and memory_binds(need.conditions) else "InterTokenLatency"


def _mean_itl(counts: Sequence[float]) -> float | None:
    """The mean inter-token time by bucket midpoints, in seconds: accurate enough for a sentence."""
    if not counts or counts[-1] <= 0:
        return None
    total, low, below = 0.0, 0.0, 0.0
    for bound, count in zip(BOUNDS[:-1], counts, strict=False):
        total += (count - below) * (low + bound) / 2.0
        low, below = bound, count
    return (total + (counts[-1] - below) * low) / counts[-1]
