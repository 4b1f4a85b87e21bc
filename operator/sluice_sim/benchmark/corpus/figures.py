"""The figures of one run: attainment and GPU-hours, of the first part of the load and of the rest."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice_sim.benchmark.corpus.load import Load
from sluice_sim.benchmark.search.schedule import PIECE
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.results.run import PodLifetime, Run
from sluice_sim.results.score import HOUR, actions_per_hour, worst_share


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a run. Requests belong to the part in which they arrive."""

    offered: int
    missed: int
    gpu_hours: float

    @property
    def attainment(self) -> float:
        """Good over offered requests; 1 without any request."""
        return 1.0 - self.missed / self.offered if self.offered else 1.0

    def __add__(self, other: "Part") -> "Part":
        """Both parts together."""
        return Part(self.offered + other.offered, self.missed + other.missed, self.gpu_hours + other.gpu_hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one run."""

    first: Part
    after: Part
    worst: float  # attainment in the worst 5 minutes
    replicas_mean: float
    replicas_max: int
    kv_share_max: float
    actions: float  # per hour
    cpu_seconds: float
    missed: tuple[int, ...]  # requests missed per piece of a schedule (`schedule.PIECE` seconds)

    @property
    def whole(self) -> Part:
        """Both parts together."""
        return self.first + self.after

    @property
    def attainment(self) -> float:
        """Attainment of the whole load."""
        return self.whole.attainment

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of the whole load, from bind to release."""
        return self.first.gpu_hours + self.after.gpu_hours


def figures_of(run: Run, load: Load, cpu_seconds: float) -> Figures:
    """The figures of a finished run of the load."""
    cut = load.first_seconds
    return Figures(
        first=_part(run, load.gpus, 0.0, cut),
        after=_part(run, load.gpus, cut, run.seconds + 1.0),
        worst=worst_share(run.records),
        replicas_mean=run.replica_seconds / run.seconds if run.seconds else 0.0,
        replicas_max=max(count for _, count in run.replicas),
        kv_share_max=max((sample.kv_share for sample in run.fleet_samples), default=0.0),
        actions=actions_per_hour(run.desired, run.seconds),
        cpu_seconds=cpu_seconds,
        missed=_by_piece(run.records, load.seconds),
    )


def to_dict(found: Figures) -> dict[str, Any]:
    """Plain types for the store."""
    return {
        "first": [found.first.offered, found.first.missed, round(found.first.gpu_hours, 6)],
        "after": [found.after.offered, found.after.missed, round(found.after.gpu_hours, 6)],
        "worst": round(found.worst, 6),
        "replicas_mean": round(found.replicas_mean, 4),
        "replicas_max": found.replicas_max,
        "kv_share_max": round(found.kv_share_max, 4),
        "actions": round(found.actions, 3),
        "cpu_seconds": round(found.cpu_seconds, 3),
        "missed": list(found.missed),
        "attainment": round(found.attainment, 6),  # for the progress output; the parts have the counts
        "gpu_hours": round(found.gpu_hours, 6),
    }


def from_dict(value: Mapping[str, Any]) -> Figures:
    """The figures of a stored piece."""
    return Figures(
        first=Part(*value["first"]),
        after=Part(*value["after"]),
        worst=value["worst"],
        replicas_mean=value["replicas_mean"],
        replicas_max=value["replicas_max"],
        kv_share_max=value["kv_share_max"],
        actions=value["actions"],
        cpu_seconds=value["cpu_seconds"],
        missed=tuple(value["missed"]),
    )


def _part(run: Run, gpus: int, start: float, end: float) -> Part:
    mine = [one for one in run.records if start <= one.arrived_at < end]
    return Part(len(mine), _missed(mine), _gpu_hours(run.pod_lifetimes, gpus, start, end))


def _by_piece(records: Sequence[RequestRecord], seconds: float) -> tuple[int, ...]:
    missed = [0] * max(1, math.ceil(seconds / PIECE))
    for one in records:
        missed[int(one.arrived_at / PIECE)] += not one.good
    return tuple(missed)


def _missed(records: Sequence[RequestRecord]) -> int:
    return sum(not one.good for one in records)


def _gpu_hours(lifetimes: Sequence[PodLifetime], gpus: int, start: float, end: float) -> float:
    """GPU-hours of the pods within [start, end)."""
    held = sum(max(0.0, min(one.left_at, end) - max(one.created_at, start)) for one in lifetimes)
    return held * gpus / HOUR
