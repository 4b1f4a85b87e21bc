"""One simulation of the score as a value, and its outcome. Both are small enough to store, send and compare."""

import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from sluice_sim.benchmark.report.overload import overloaded
from sluice_sim.benchmark.run.requests import requests
from sluice_sim.benchmark.search.schedule import Scheduled, Static
from sluice_sim.benchmark.track import Track, WindowName
from sluice_sim.benchmark.variants import VARIANTS
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.scenario import Mode
from sluice_sim.collector import uncollected
from sluice_sim.policies.policy import Law
from sluice_sim.policies.registry import LAWS
from sluice_sim.results.run import Run
from sluice_sim.results.summary import summarise

POINTS: Final = 96  # points of a time series, enough for a plot
STATIC: Final = "static"
CLAIRVOYANT: Final = "clairvoyant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is simulated. `setting` None means the law's default."""

    track: str
    window: WindowName
    law: str  # of the registry, or STATIC (setting: replicas), or CLAIRVOYANT (by `counts`)
    setting: float | None = None
    variant: str = "plain"
    mode: Mode | None = None  # None: the track's mode
    counts: tuple[int, ...] = ()
    most: int | None = None  # None: the track's limit
    series: bool = False  # keep the time series for a plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of one run.

    GPU-hours are counted from bind to release. `series` is (replicas, requests/s, good share) per piece of time.
    """

    attainment: float
    worst: float
    gpu_hours: float
    replicas_mean: float
    replicas_max: int
    actions: float
    flips: float
    requests: int
    refused: int
    hit_ratio: float
    ttft99: float | None
    itl99: float | None
    mode: str
    cpu_seconds: float
    seconds: float
    extra: dict[str, float] = field(default_factory=dict)
    series: list[list[float]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, rounded to six decimal places."""
        return {key: _rounded(value) for key, value in asdict(self).items()}


def simulate(track: Track, job: Job) -> Outcome:
    """Run the simulation. The outcome depends only on the two arguments, except for the processor time."""
    began = time.process_time()
    law = law_of(track, job)
    settings = VARIANTS[job.variant](track.settings(_begin(track, job)))
    if job.mode is not None:
        settings = replace(settings, mode=job.mode)
    spec = track.spec()
    if job.most is not None:
        scaling = spec.scaling.model_copy(update={"max_replicas": job.most})
        spec = spec.model_copy(update={"scaling": scaling})
    with uncollected():
        run = Fleet(spec, settings, law).run(requests(track, job.window))
        summary = summarise(run, track.gpus)
    return Outcome(
        attainment=summary.attainment,
        worst=summary.attainment_worst,
        gpu_hours=summary.gpu_hours,
        replicas_mean=summary.replicas_mean,
        replicas_max=summary.replicas_max,
        actions=summary.actions_per_hour,
        flips=summary.flips_per_hour,
        requests=summary.requests,
        refused=summary.refused,
        hit_ratio=summary.hit_ratio,
        ttft99=summary.ttft.p99,
        itl99=summary.itl.p99,
        mode=summary.mode,
        cpu_seconds=time.process_time() - began,
        seconds=run.seconds,
        extra={} if track.overload is None else overloaded(track, run),
        series=series(run) if job.series else [],
    )


def law_of(track: Track, job: Job) -> Law:
    """The law at the job's setting. Raises KeyError for an unknown law."""
    if job.law == STATIC:
        return Static(round(job.setting or track.least))
    if job.law == CLAIRVOYANT:
        return Scheduled(job.counts, VARIANTS[job.variant](track.settings()).cold_start)
    entry = LAWS[job.law]
    return entry.default() if job.setting is None else entry.make(job.setting)


def series(run: Run, points: int = POINTS) -> list[list[float]]:
    """Per piece of the run: existing replicas, requests per second, good share (1 if the piece has no requests)."""
    seconds = max(1.0, run.seconds / points)
    offered, good = [0] * points, [0] * points
    replicas: list[list[int]] = [[] for _ in range(points)]
    for record in run.records:
        piece = min(points - 1, int(record.arrived_at / seconds))
        offered[piece] += 1
        good[piece] += record.good
    for at, count in run.replicas:
        replicas[min(points - 1, int(at / seconds))].append(count)
    found, last = [], 0.0
    for piece in range(points):
        seen = replicas[piece]
        last = sum(seen) / len(seen) if seen else last
        share = good[piece] / offered[piece] if offered[piece] else 1.0
        found.append([last, offered[piece] / seconds, share])
    return found


def _begin(track: Track, job: Job) -> int:
    if job.law == STATIC:
        return round(job.setting or track.least)
    return job.counts[0] if job.counts else track.begin


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) if not isinstance(one, float) else round(one, 4) for one in value]
    return value
