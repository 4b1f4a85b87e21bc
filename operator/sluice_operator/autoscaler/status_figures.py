"""The figures of the fleet that a decision carries for the status."""

from collections.abc import Sequence
from typing import Literal

from sluice_operator.autoscaler.replicas.history import History
from sluice_operator.autoscaler.replicas.need import Need
from sluice_operator.autoscaler.replicas.rules import predicted_late
from sluice_operator.autoscaler.signals.histograms import BOUNDS, quantile
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.signals.windows import WindowSums
from sluice_operator.autoscaler.values import ForecastStatus


def latency(snapshot: Snapshot, counts: Sequence[float]) -> float | None:
    """The attainment percentile of a histogram, seconds; the last finite bound at most, as the status needs a number."""
    seconds = quantile(counts, snapshot.targets.attainment)
    return None if seconds is None else min(seconds, BOUNDS[-2])


def attainment(window: WindowSums) -> float | None:
    """Share of good requests among those of the window that ended, were rejected or are already late."""
    outcome = window.outcome
    return _share(outcome.met, outcome.met + outcome.missed)


def forecast_status(snapshot: Snapshot, need: Need, history: History) -> ForecastStatus | None:
    """What the law expects and how well it expected so far; None while no engine is measured."""
    if need.binding == "MetricsMissing":
        return None
    past = history.comparisons
    requests = sum(one.requests for one in past)
    unreachable, missed = sum(one.unreachable for one in past), sum(one.missed for one in past)
    return ForecastStatus(
        rate=snapshot.window.rate("arrived_total"),
        growth=need.replay.growth,
        remembered=need.replay.remembered,
        predicted=_share(requests - predicted_late(past) - unreachable, requests),
        attained=_share(requests - missed, requests),
        model_error=need.replay.error,
    )


def metrics_state(snapshot: Snapshot) -> Literal["Fresh", "Partial", "Stale", "NoTraffic", "NoPods"]:
    """How much of the fleet is measured."""
    fleet, window = snapshot.fleet, snapshot.window
    if not fleet.ready:
        return "NoPods"
    if not fleet.measured:
        return "Stale"
    if fleet.unmeasured:
        return "Partial"
    traffic = fleet.in_flight or window.count("arrived_total") or window.count("finished_total")
    return "Fresh" if traffic else "NoTraffic"


def _share(part: float, whole: float) -> float | None:
    """A share within 0..1; None of nothing."""
    return min(max(part / whole, 0.0), 1.0) if whole > 0.0 else None
