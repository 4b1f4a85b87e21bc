"""The figures of the fleet that a decision carries for the status."""

from typing import Literal

from sluice_operator.autoscaler.replicas.recommendation import Recommendation
from sluice_operator.autoscaler.signals.histograms import BOUNDS, quantile
from sluice_operator.autoscaler.signals.lengths import mean_work
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.signals.windows import WindowSums
from sluice_operator.autoscaler.values import ForecastStatus


def latency(snapshot: Snapshot, counts: tuple[float, ...]) -> float | None:
    """The attainment percentile of a histogram, seconds; the last finite bound at most, as the status needs a number."""
    seconds = quantile(counts, snapshot.targets.attainment)
    return None if seconds is None else min(seconds, BOUNDS[-2])


def attainment(window: WindowSums) -> float | None:
    """Share of good requests among those of the window that ended, were rejected or are already late."""
    outcome = window.outcome
    return outcome.met / (outcome.met + outcome.missed) if outcome.met + outcome.missed > 0 else None


def forecast_status(snapshot: Snapshot, recommendation: Recommendation, confidence: float) -> ForecastStatus | None:
    """The estimates that the status keeps over a restart; None while no engine is measured."""
    if recommendation.measured_binding == "MetricsMissing":
        return None
    demand, work = recommendation.demand, mean_work(snapshot.signals.lengths)
    return ForecastStatus(
        rate=demand.level,
        planned=demand.expected,
        dispersion=demand.arrivals.dispersion,
        volatility=demand.arrivals.volatility,
        output_tokens=work.output if work else 0.0,
        prompt_tokens=work.uncached + work.cached if work else 0.0,
        cached_tokens=work.cached if work else 0.0,
        confidence=confidence,
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
