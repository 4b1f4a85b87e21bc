"""The score's own arithmetic, on finished runs: who was served well, what it cost, how nervous the law was, and the
bounds that no law can pass. Every function is pure; `good` is what `spec.slo` says and the engines count.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from sluice_law.capacity import Work, prefill_seconds
from sluice_law.steptime import StepTimeModel
from sluice_sim.record import Record
from sluice_sim.run import Life

WORST_SECONDS: Final = 300.0
HOUR: Final = 3600.0


def good_share(records: Sequence[Record]) -> float:
    """Good over offered: rejected, aborted and never ended are not good. 1 where nothing was offered."""
    return sum(record.good for record in records) / len(records) if records else 1.0


def worst_share(records: Sequence[Record], seconds: float = WORST_SECONDS) -> float:
    """The lowest good share of any piece of `seconds`, by arrival. The trace's last, shorter piece counts with the one
    before it."""
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


def gpu_hours(lives: Iterable[Life], gpus: int) -> float:
    """From bind to release, loading and draining included, at `gpus` per replica."""
    return math.fsum(life.left_at - life.created_at for life in lives) * gpus / HOUR


def moves(wanted: Sequence[tuple[float, int]]) -> list[int]:
    """How the asked-for count changed, in order: +2, −1, …"""
    return [after - before for (_, before), (_, after) in pairwise(wanted) if after != before]


def actions_per_hour(wanted: Sequence[tuple[float, int]], seconds: float) -> float:
    """Changes of the count that was asked for."""
    return len(moves(wanted)) * HOUR / seconds if seconds > 0 else 0.0


def flips_per_hour(wanted: Sequence[tuple[float, int]], seconds: float) -> float:
    """Changes of direction: an up after a down, a down after an up."""
    directions = [up for up, _ in groupby(move > 0 for move in moves(wanted))]
    return max(0, len(directions) - 1) * HOUR / seconds if seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a law's knob, judged: its attainment and its GPU-hours."""

    knob: float
    attainment: float
    gpu_hours: float


def cost_at(points: Sequence[Point], attainment: float = 0.99) -> float | None:
    """The GPU-hours at which a law reaches `attainment`: its cheapest point that does, or cheaper by straight lines
    between neighbours on its knob of which one does and one does not. None: it never does."""
    found = [point.gpu_hours for point in points if point.attainment >= attainment]
    for one, other in pairwise(sorted(points, key=lambda point: point.knob)):
        low, high = sorted((one, other), key=lambda point: point.attainment)
        if low.attainment < attainment < high.attainment:
            share = (attainment - low.attainment) / (high.attainment - low.attainment)
            found.append(low.gpu_hours + share * (high.gpu_hours - low.gpu_hours))
    return min(found, default=None)


def request_seconds(model: StepTimeModel, prompt: int, output: int, batch: int) -> float:
    """The least engine time that one request costs: its prompt's work, and per token its own terms and a share of the
    step's fixed cost in the largest `batch`."""
    tokens = max(0, output - 1)  # the prompt's step gives the first
    own = model.sequence + model.kv_token * (prompt + output / 2.0)
    return prefill_seconds(model, Work(output, prompt)) + tokens * (model.base / batch + own)


def largest_batch(model: StepTimeModel, itl: float, most: int) -> int:
    """Sequences that can decode at once within the inter-token target, each with nothing to read, at most `most`."""
    if model.sequence <= 0:
        return most
    return max(1, min(most, math.floor((itl - model.base) / model.sequence)))


def least_engine_seconds(
    records: Sequence[Record],
    model: StepTimeModel,
    itl: float,
    most: int,
    share: float = 0.99,
    pool: float = math.inf,
) -> float:
    """The work lower bound: no schedule serves `share` of the requests well in less engine time (deadlines, whole
    replicas, cold starts and prefix hits left out, hence loose). A step's fixed cost is shared by a full batch, or by
    what fits into a `pool` of so many tokens: each is a bound of its own, the larger one counts."""
    batch, count = largest_batch(model, itl, most), math.ceil(share * len(records))
    by_batch = sorted(request_seconds(model, one.prompt, one.output, batch) for one in records)
    by_memory = sorted(
        request_seconds(model, one.prompt, one.output, 1)
        - model.base * max(0, one.output - 1) * max(0.0, 1.0 - (one.prompt + one.output / 2.0) / pool)
        for one in records
    )
    return max(math.fsum(by_batch[:count]), math.fsum(by_memory[:count]))
