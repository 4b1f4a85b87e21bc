"""The benchmark's tasks, as values that a process pool can transfer.

Each has a key, a description and a plain result.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sluice_sim.benchmark.run.job import CLAIRVOYANT, Job, simulate
from sluice_sim.benchmark.run.requests import requests
from sluice_sim.benchmark.run.store import key_of
from sluice_sim.benchmark.search.miss_counter import MissCounter
from sluice_sim.benchmark.search.miss_tables import Table, table
from sluice_sim.benchmark.search.schedule import Counts
from sluice_sim.benchmark.track import Track, WindowName, read_track
from sluice_sim.benchmark.variants import VARIANTS
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.results import score


@dataclass(frozen=True, slots=True)
class MissTableTask:
    """The table of missed requests in the pieces [first, end) of a window, by number of replicas."""

    track: str
    window: WindowName
    variant: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class ScheduleRunTask:
    """A run of a schedule over the whole window: the requests missed per piece."""

    track: str
    window: WindowName
    variant: str
    counts: Counts


@dataclass(frozen=True, slots=True)
class RemovalTask:
    """The additional misses of each piece in [first, end) of a schedule with one replica fewer in it, up to `limit`."""

    track: str
    window: WindowName
    variant: str
    counts: Counts
    first: int
    end: int
    limit: int


@dataclass(frozen=True, slots=True)
class WorkBoundTask:
    """The work lower bound of a window, GPU-hours."""

    track: str
    window: WindowName


# The kind of a task in the keys of stored pieces. A change makes the stored pieces of that kind unusable.
STORED_KINDS: Final = {
    MissTableTask: "Search",
    ScheduleRunTask: "Whole",
    RemovalTask: "Spare",
    WorkBoundTask: "Bound",
}
Task = Job | MissTableTask | ScheduleRunTask | RemovalTask | WorkBoundTask


def key(task: Task) -> str:
    """The key of the task in the store."""
    track = read_track(task.track)
    if isinstance(task, Job):
        return key_of(track, task)
    job = Job(track=task.track, window=task.window, law=CLAIRVOYANT)
    return key_of(track, job, STORED_KINDS[type(task)], asdict(task))


def describe(task: Task) -> str:
    """A description of the task, for readers of the store and of the progress output."""
    if isinstance(task, Job):
        setting = "default" if task.setting is None else f"{task.setting:g}"
        variant = "" if task.variant == "plain" else f", {task.variant}"
        return f"{task.track} {task.window}: {task.law} at {setting}{variant}"
    if isinstance(task, WorkBoundTask):
        return f"{task.track} {task.window}: work bound"
    words = f"{task.track} {task.window}: clairvoyant ({task.variant})"
    if isinstance(task, ScheduleRunTask):
        return f"{words}, a schedule of {sum(task.counts) / len(task.counts):.2f} replicas"
    what = "table of misses" if isinstance(task, MissTableTask) else "cost of removals"
    return f"{words}, {what} of pieces {task.first} to {task.end}"


def measure(task: Task) -> dict[str, Any]:
    """Run the task; it takes minutes at most."""
    track = read_track(task.track)
    if isinstance(task, Job):
        return simulate(track, task).to_dict()
    if isinstance(task, WorkBoundTask):
        return {"gpu_hours": lower_bound(track, task.window)}
    seconds = track.window(task.window).seconds
    counter = MissCounter(track, VARIANTS[task.variant](track.settings()), requests(track, task.window), seconds)
    if isinstance(task, MissTableTask):
        offered = [counter.offered(piece) for piece in range(task.first, task.end)]
        found = table(counter, task.first, task.end)
        return {"offered": offered, "missed": [sorted(options.items()) for options in found]}
    if isinstance(task, ScheduleRunTask):
        return {"missed": counter.misses(task.counts, 0, counter.pieces)}
    return {"extra": counter.removal_costs(task.counts, task.first, task.end, task.limit)}


def table_of(found: dict[str, Any]) -> Table:
    """The table of a stored search."""
    return tuple({int(count): int(missed) for count, missed in options} for options in found["missed"])


def lower_bound(track: Track, window: WindowName) -> float:
    """GPU-hours below which no schedule serves 99 % of the window's requests within their targets, by work alone.

    Prompt tokens that an endless cache of the whole fleet would hold are not counted as work.
    """
    seen: set[int] = set()
    records = []
    for one in requests(track, window):
        known = 0
        for block in one.blocks:
            if block not in seen:
                break
            known += 512
        seen.update(one.blocks)
        records.append(RequestRecord(one.at, max(1, one.prompt - known), one.output))
    most = track.spec().engine.scheduling.max_num_seqs
    seconds = score.least_engine_seconds(records, track.hardware_profile().model, track.itl, most, pool=track.kv_tokens)
    return seconds * track.gpus / score.HOUR


def endless_hit_ratio(track: Track, window: WindowName) -> float:
    """Share of all prompt tokens that one endless cache would hold when each request arrives."""
    return endless(requests(track, window))


def endless(arrivals: Sequence[Any]) -> float:
    """The same ratio for any arrivals: only full blocks are cached, and a prompt's last token is always computed."""
    seen: set[int] = set()
    held = total = 0
    for one in arrivals:
        known = 0
        for block in one.blocks:
            if block not in seen:
                break
            known += 1
        held += min(known * 512, one.prompt - 1)
        total += one.prompt
        seen.update(one.blocks)
    return held / total if total else 0.0
