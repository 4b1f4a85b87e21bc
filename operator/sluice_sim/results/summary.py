"""The summary figures of a run. A request is good if it meets `spec.slo`: admitted, completed, both targets met."""

from collections.abc import Sequence
from dataclasses import dataclass

from sluice_sim.cluster.scenario import Mode
from sluice_sim.results import score
from sluice_sim.results.run import Run


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles in seconds; None without any observation."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of the result table. Shares are 0..1."""

    mode: Mode
    seconds: float
    requests: int
    refused: int
    failed: int  # requests whose replica failed after their first token
    pod_failures: int
    attainment: float  # good over offered requests
    attainment_worst: float  # the lowest of any 5 minutes
    replicas_min: int
    replicas_mean: float
    replicas_max: int
    replica_hours: float
    gpus_per_replica: int
    gpu_hours: float
    actions_per_hour: float
    flips_per_hour: float
    limit_min: int | None
    limit_max: int | None
    kv_share_max: float
    hit_ratio: float  # cached over all prompt tokens of the served requests
    ttft: Percentiles
    itl: Percentiles  # over the requests' mean inter-token times


def summarise(run: Run, gpus_per_replica: int = 1) -> Summary:
    """Summarise a finished run."""
    counts = [count for _, count in run.replicas]
    limits = [limit for _, limit in run.limits]
    served = [record for record in run.records if record.first_at is not None]
    prompts = sum(record.prompt for record in served)
    return Summary(
        mode=run.mode,
        seconds=run.seconds,
        requests=len(run.records),
        refused=sum(record.refused for record in run.records),
        failed=sum(record.failed for record in run.records),
        pod_failures=run.failures,
        attainment=score.good_share(run.records),
        attainment_worst=score.worst_share(run.records),
        replicas_min=min(counts),
        replicas_mean=run.replica_seconds / run.seconds if run.seconds else float(counts[0]),
        replicas_max=max(counts),
        replica_hours=score.gpu_hours(run.pod_lifetimes, 1),
        gpus_per_replica=gpus_per_replica,
        gpu_hours=score.gpu_hours(run.pod_lifetimes, gpus_per_replica),
        actions_per_hour=score.actions_per_hour(run.desired, run.seconds),
        flips_per_hour=score.flips_per_hour(run.desired, run.seconds),
        limit_min=min(limits, default=None),
        limit_max=max(limits, default=None),
        kv_share_max=max((sample.kv_share for sample in run.fleet_samples), default=0.0),
        hit_ratio=sum(record.cached for record in served) / prompts if prompts else 0.0,
        ttft=_percentiles([ttft for record in served if (ttft := record.ttft) is not None]),
        itl=_percentiles([itl for record in served if (itl := record.itl) is not None]),
    )


def _percentiles(values: Sequence[float]) -> Percentiles:
    """Nearest-rank percentiles."""
    ordered = sorted(values)
    if not ordered:
        return Percentiles(None, None, None)
    last = len(ordered) - 1
    return Percentiles(*(ordered[min(last, int(share * len(ordered)))] for share in (0.50, 0.95, 0.99)))
