"""A run as the figures that a reader asks for. Good is what `spec.slo` says: admitted, completed, both targets met."""

from collections.abc import Sequence
from dataclasses import dataclass

from sluice_sim.fleet import Run


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds; None without any observation."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The table's content."""

    seconds: float
    requests: int
    refused: int
    attainment: float  # good over offered
    replicas_min: int
    replicas_mean: float
    replicas_max: int
    replica_hours: float
    limit_min: int | None
    limit_max: int | None
    ttft: Percentiles
    itl: Percentiles  # of requests' mean inter-token times


def summarise(run: Run) -> Summary:
    """Figures of a finished run."""
    counts = [count for _, count in run.replicas]
    limits = [limit for _, limit in run.limits]
    return Summary(
        seconds=run.seconds,
        requests=len(run.records),
        refused=sum(record.refused for record in run.records),
        attainment=sum(record.good for record in run.records) / len(run.records),
        replicas_min=min(counts),
        replicas_mean=run.replica_seconds / run.seconds if run.seconds else float(counts[0]),
        replicas_max=max(counts),
        replica_hours=run.replica_seconds / 3600.0,
        limit_min=min(limits, default=None),
        limit_max=max(limits, default=None),
        ttft=_percentiles([record.ttft for record in run.records if record.ttft is not None]),
        itl=_percentiles([record.itl for record in run.records if record.itl is not None]),
    )


def _percentiles(values: Sequence[float]) -> Percentiles:
    """Nearest-rank percentiles."""
    ordered = sorted(values)
    if not ordered:
        return Percentiles(None, None, None)
    last = len(ordered) - 1
    return Percentiles(*(ordered[min(last, int(share * len(ordered)))] for share in (0.50, 0.95, 0.99)))
