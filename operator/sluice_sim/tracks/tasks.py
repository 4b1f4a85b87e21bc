"""What the bench measures, as values that a process pool can take: each has a key, words, and a plain result."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sluice_sim import score
from sluice_sim.record import Record
from sluice_sim.tracks.clairvoyant import Judge, Path, Step, cost, path, verified
from sluice_sim.tracks.job import CLAIRVOYANT, Job, simulate
from sluice_sim.tracks.requests import requests
from sluice_sim.tracks.store import key_of
from sluice_sim.tracks.track import Track, WindowName, read_track
from sluice_sim.tracks.variants import VARIANTS


@dataclass(frozen=True, slots=True)
class Search:
    """The clairvoyant's path through the pieces [first, end) of a window."""

    track: str
    window: WindowName
    variant: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Verify:
    """The windows' paths made into one schedule."""

    track: str
    window: WindowName
    variant: str
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """The work lower bound of a window, GPU-hours."""

    track: str
    window: WindowName


Task = Job | Search | Verify | Bound


def key(task: Task) -> str:
    """The store's key."""
    track = read_track(task.track)
    if isinstance(task, Job):
        return key_of(track, task)
    job = Job(track=task.track, window=task.window, law=CLAIRVOYANT)
    return key_of(track, job, type(task).__name__, asdict(task))


def about(task: Task) -> str:
    """In words, for people who read the store or wait."""
    if isinstance(task, Job):
        setting = "default" if task.setting is None else f"{task.setting:g}"
        weather = "" if task.variant == "plain" else f", {task.variant}"
        return f"{task.track} {task.window}: {task.law} at {setting}{weather}"
    if isinstance(task, Search):
        return f"{task.track} {task.window}: clairvoyant, pieces {task.first} to {task.end} ({task.variant})"
    return f"{task.track} {task.window}: {'clairvoyant, whole' if isinstance(task, Verify) else 'work bound'}"


def measure(task: Task) -> dict[str, Any]:
    """Do it: minutes at most."""
    track = read_track(task.track)
    if isinstance(task, Job):
        return simulate(track, task).to_dict()
    if isinstance(task, Bound):
        return {"gpu_hours": lower_bound(track, task.window)}
    seconds = track.window(task.window).seconds
    judge = Judge(track, VARIANTS[task.variant](track.settings()), requests(track, task.window), seconds)
    if isinstance(task, Search):
        return asdict(path(judge, task.first, task.end))
    counts = verified(judge, task.paths)
    return {"counts": list(counts), "replica_seconds": cost(counts, judge.settings.cold_start)}


def path_of(found: dict[str, Any]) -> Path:
    """A stored search."""
    return Path(tuple(found["start"]), tuple(Step(**step) for step in found["steps"]))


def lower_bound(track: Track, window: WindowName) -> float:
    """GPU-hours below which no schedule serves 99 % of the window's requests well, by work alone. Where prompts share
    prefixes, only what an endless cache of the whole fleet would not hold counts."""
    seen: set[int] = set()
    records = []
    for one in requests(track, window):
        known = 0
        for block in one.blocks:
            if block not in seen:
                break
            known += 512
        seen.update(one.blocks)
        records.append(Record(one.at, max(1, one.prompt - known), one.output))
    most = track.spec().engine.scheduling.max_num_seqs
    seconds = score.least_engine_seconds(records, track.hardware_profile().model, track.itl, most, pool=track.kv_tokens)
    return seconds * track.gpus / score.HOUR


def endless_hit_ratio(track: Track, window: WindowName) -> float:
    """Share of all prompt tokens that one endless cache would hold when each request comes."""
    return endless(requests(track, window))


def endless(arrivals: Sequence[Any]) -> float:
    """The same of any arrivals: full blocks only, a prompt's last token is always computed."""
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
