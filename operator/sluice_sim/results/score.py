"""The figures of the score, computed from finished runs: SLO attainment, GPU cost, scaling stability and lower bounds.

Every function is pure. `good` is defined by `spec.slo` and counted by the engines.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from sluice_perfmodel.step_time import StepTimeModel
from sluice_perfmodel.workload import Work, prefill_seconds
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.results.run import PodLifetime

WORST_SECONDS: Final = 300.0
HOUR: Final = 3600.0


def good_share(records: Sequence[RequestRecord]) -> float:
    """Good over offered requests. Rejected, aborted and unfinished requests are not good. 1 without any request."""
    return sum(record.good for record in records) / len(records) if records else 1.0


def worst_share(records: Sequence[RequestRecord], seconds: float = WORST_SECONDS) -> float:
    """The lowest good share of any interval of `seconds`, by arrival time.

    The last, shorter interval of the trace is merged into the one before it."""
    if not records:
        return 1.0
    span = max(record.arrived_at for record in records)
    pieces = max(1, int(span / seconds))
    offered, good = [0] * pieces, [0] * pieces
    for record in records:
        piece = min(pieces - 1, int(record.arrived_at / seconds))
        offered[piece] += 1
        good[piece] += record.good
    return min(part / whole for part, whole in zip(good, offered, strict=True) if whole)


def gpu_hours(lifetimes: Iterable[PodLifetime], gpus: int) -> float:
    """GPU-hours from bind to release, loading and draining included, with `gpus` per replica."""
    return math.fsum(lifetime.left_at - lifetime.created_at for lifetime in lifetimes) * gpus / HOUR


def moves(wanted: Sequence[tuple[float, int]]) -> list[int]:
    """The changes of the desired replicas, in order: +2, −1, …"""
    return [after - before for (_, before), (_, after) in pairwise(wanted) if after != before]


def actions_per_hour(wanted: Sequence[tuple[float, int]], seconds: float) -> float:
    """Changes of the desired replicas per hour."""
    return len(moves(wanted)) * HOUR / seconds if seconds > 0 else 0.0


def flips_per_hour(wanted: Sequence[tuple[float, int]], seconds: float) -> float:
    """Changes of direction per hour: a scale-up after a scale-down, or the reverse."""
    directions = [up for up, _ in groupby(move > 0 for move in moves(wanted))]
    return max(0, len(directions) - 1) * HOUR / seconds if seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """The result of a law at one value of its knob: SLO attainment (0..1) and GPU-hours."""

    knob: float
    attainment: float
    gpu_hours: float


def cost_at(points: Sequence[Point], attainment: float = 0.99) -> float | None:
    """The least GPU-hours at which a law reaches `attainment`; None if it never does.

    The candidates are the points that reach it, and linear interpolations between adjacent knob values of which only
    one reaches it."""
    found = [point.gpu_hours for point in points if point.attainment >= attainment]
    for one, other in pairwise(sorted(points, key=lambda point: point.knob)):
        low, high = sorted((one, other), key=lambda point: point.attainment)
        if low.attainment < attainment < high.attainment:
            share = (attainment - low.attainment) / (high.attainment - low.attainment)
            found.append(low.gpu_hours + share * (high.gpu_hours - low.gpu_hours))
    return min(found, default=None)


def request_seconds(model: StepTimeModel, prompt: int, output: int, batch: int) -> float:
    """Lower bound of the engine time of one request, in seconds.

    It is the prefill work, plus per output token its own terms and a 1/`batch` share of the step's fixed cost."""
    tokens = max(0, output - 1)  # the prompt's step gives the first
    own = model.sequence + model.kv_token * (prompt + output / 2.0)
    return prefill_seconds(model, Work(output, prompt)) + tokens * (model.base / batch + own)


def largest_batch(model: StepTimeModel, itl: float, most: int) -> int:
    """The largest number of sequences that decode within the inter-token target `itl` (s) at zero context, ≤ `most`."""
    if model.sequence <= 0:
        return most
    return max(1, min(most, math.floor((itl - model.base) / model.sequence)))


def least_engine_seconds(
    records: Sequence[RequestRecord],
    model: StepTimeModel,
    itl: float,
    most: int,
    share: float = 0.99,
    pool: float = math.inf,
) -> float:
    """The work lower bound in engine-seconds: no schedule serves `share` of the requests well in less engine time.

    It is loose, since it leaves out deadlines, whole replicas, cold starts and prefix hits. A step's fixed cost is
    shared either by a full batch, or by the sequences that fit into a `pool` of that many tokens. Each gives a bound;
    the result is the larger one. O(n log n) in the requests."""
    batch, count = largest_batch(model, itl, most), math.ceil(share * len(records))
    by_batch = sorted(request_seconds(model, one.prompt, one.output, batch) for one in records)
    by_memory = sorted(
        request_seconds(model, one.prompt, one.output, 1)
        - model.base * max(0, one.output - 1) * max(0.0, 1.0 - (one.prompt + one.output / 2.0) / pool)
        for one in records
    )
    return max(math.fsum(by_batch[:count]), math.fsum(by_memory[:count]))
