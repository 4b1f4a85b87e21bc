"""How each figure of the score is found, as generators: each asks for tasks and is sent their results.

So a hundred searches wait for each other's processors, not for each other, and a bench that was stopped asks for the
same tasks again and finds them in the store.
"""

import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sluice_sim.laws.registry import LAWS
from sluice_sim.score import Point, cost_at
from sluice_sim.tracks.clairvoyant import WINDOW_PIECES, Path
from sluice_sim.tracks.effort import Effort
from sluice_sim.tracks.job import CLAIRVOYANT, STATIC, Job
from sluice_sim.tracks.schedule import PIECE
from sluice_sim.tracks.tasks import Bound, Search, Task, Verify, path_of
from sluice_sim.tracks.track import Track, WindowName

Found = dict[str, Any]
Plan = Generator[Sequence[Task], Sequence[Found], Any]
TARGET: Final = 0.99
MOST_STATIC: Final = 4  # times the track's most replicas: what a constant fleet is tried up to


class Unreachable(ValueError):
    """No constant number of replicas keeps the track's promise. The message says how far they came."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One setting of a knob and what came of it."""

    setting: float
    found: Found

    @property
    def attainment(self) -> float:
        """Good over offered."""
        return float(self.found["attainment"])

    @property
    def gpu_hours(self) -> float:
        """From bind to release."""
        return float(self.found["gpu_hours"])

    @property
    def point(self) -> Point:
        """For interpolation."""
        return Point(self.setting, self.attainment, self.gpu_hours)


@dataclass(frozen=True, slots=True)
class Placed:
    """A law on a track: at its default, as tuned, and where 99 % costs what."""

    law: str
    track: str
    default: Found
    tuned: Tried
    curve: tuple[Tried, ...]  # all settings that were judged on the test window
    train: tuple[Tried, ...]
    gpu_hours: float | None  # at 99 %; None: never reached
    default_gpu_hours: float | None  # the same, beginning from the default


@dataclass(frozen=True, slots=True)
class Clairvoyant:
    """The denominator, and the bound below it."""

    track: str
    counts: tuple[int, ...]
    found: Found
    bound: float

    @property
    def gpu_hours(self) -> float:
        """From bind to release."""
        return float(self.found["gpu_hours"])


def clairvoyant(track: Track, window: WindowName, variant: str = "plain") -> Plan:
    """Search all three-hour windows, join, verify. Returns a Clairvoyant."""
    pieces = max(1, -int(-track.window(window).seconds // PIECE))
    ends = [*range(0, pieces, WINDOW_PIECES), pieces]
    searches = [Search(track.name, window, variant, a, b) for a, b in itertools.pairwise(ends)]
    paths: tuple[Path, ...] = tuple(path_of(one) for one in (yield searches))
    (joined,) = yield [Verify(track.name, window, variant, paths)]
    counts = tuple(joined["counts"])
    job = Job(track=track.name, window=window, law=CLAIRVOYANT, counts=counts, variant=variant, series=True)
    found, bound = yield [job, Bound(track.name, window)]
    return Clairvoyant(track.name, counts, found, float(bound["gpu_hours"]))


def static_peak(track: Track, window: WindowName) -> Plan:
    """The fewest replicas that, always there, reach the target. Returns (replicas, Found). Raises Unreachable where
    MOST_STATIC times the track's most do not."""
    low, high = 0, track.least  # low fails, high is tried
    seen: dict[int, Found] = {}
    while True:
        (seen[high],) = yield [Job(track=track.name, window=window, law=STATIC, setting=float(high))]
        if seen[high]["attainment"] >= TARGET:
            break
        if high >= MOST_STATIC * track.most:
            raise Unreachable(
                f"{track.name} {window}: {high} replicas that are always there serve {seen[high]['attainment']:.2%} of the "
                f"requests well, not {TARGET:.0%}: its promise or its load in tracks/files/{track.name}.toml cannot be kept"
            )
        low, high = high, min(high * 2, MOST_STATIC * track.most)
    while high - low > 1:
        middle = (low + high) // 2
        (seen[middle],) = yield [Job(track=track.name, window=window, law=STATIC, setting=float(middle))]
        low, high = (low, middle) if seen[middle]["attainment"] >= TARGET else (middle, high)
    return high, seen[high]


def tune(track: Track, law: str, effort: Effort) -> Plan:
    """As many settings as the effort allows: every other of the grid, the best one's neighbours, and beyond the edge where
    the best lies there. Returns all Tried, the best first."""
    grid, most = LAWS[law].knob.grid, effort.runs_of(law)
    tried: dict[float, Tried] = {}

    def ask(settings: Sequence[float]) -> Plan:
        new = [one for one in settings if one not in tried][: most - len(tried)]
        found = yield [Job(track=track.name, window=effort.train, law=law, setting=one) for one in new]
        tried.update({one: Tried(one, value) for one, value in zip(new, found, strict=True)})

    if most > 0:
        yield from ask(spaced(grid, most))
        yield from ask(_neighbours(grid, best(list(tried.values())).setting))
    while len(tried) < most:
        top = best(list(tried.values())).setting
        beyond = _beyond(sorted(tried), top)
        if beyond is None:
            break
        yield from ask([beyond])
    ordered = sorted(tried.values(), key=_rank)
    return tuple(ordered)


def spaced(grid: Sequence[float], most: int) -> list[float]:
    """Every other of the grid; where `most` are fewer, that many, each in the middle of its part of the grid."""
    if most > len(grid) // 2:
        return list(grid[::2])
    return [grid[int((part + 0.5) * len(grid) / most)] for part in range(most)]


def place(track: Track, law: str, effort: Effort, whole_curve: bool = False) -> Plan:
    """Tune on the train window, judge on the test window. Returns a Placed. `whole_curve`: judge every setting."""
    searched: tuple[Tried, ...] = yield from tune(track, law, effort)
    chosen = searched[0].setting if searched else LAWS[law].knob.default
    default = Job(track=track.name, window=effort.test, law=law, series=True)
    judged: dict[float, Tried] = {}

    def judge(settings: Sequence[float]) -> Plan:
        new = [one for one in settings if one not in judged]
        jobs = [Job(track=track.name, window=effort.test, law=law, setting=one, series=one == chosen) for one in new]
        found = yield jobs
        judged.update({one: Tried(one, value) for one, value in zip(new, found, strict=True)})

    (at_default,) = yield [default]
    judged_default = LAWS[law].knob.default
    judged[judged_default] = Tried(judged_default, at_default)
    yield from judge([chosen])
    near = _around(sorted(one.setting for one in searched), chosen) if effort.near else []
    yield from judge([one.setting for one in searched] if whole_curve else near)
    stricter = sorted(
        (one for one in searched if one.attainment >= searched[0].attainment), key=lambda one: one.attainment
    )
    for one in stricter[: effort.more + 1]:
        if judged[chosen].attainment >= TARGET or any(
            other.attainment >= TARGET for other in judged.values() if other.gpu_hours >= judged[chosen].gpu_hours
        ):
            break
        yield from judge([one.setting])
    curve = tuple(judged[setting] for setting in sorted(judged))
    return Placed(
        law=law,
        track=track.name,
        default=at_default,
        tuned=judged[chosen],
        curve=curve,
        train=searched,
        gpu_hours=placed(judged[chosen], curve),
        default_gpu_hours=placed(judged[judged_default], curve),
    )


def placed(tried: Tried, curve: Sequence[Tried]) -> float | None:
    """What a law costs at the target: its own cost where it reaches it, else by its knob's curve."""
    if tried.attainment >= TARGET:
        return tried.gpu_hours
    return cost_at([one.point for one in curve], TARGET)


def best(tried: Sequence[Tried]) -> Tried:
    """The cheapest that reaches the target; where none does, the one that comes nearest."""
    return min(tried, key=_rank)


def attained_at(curve: Sequence[Tried], gpu_hours: float) -> float | None:
    """The best attainment for at most so many GPU-hours, by straight lines along the knob; None below all of it."""
    found = [one.attainment for one in curve if one.gpu_hours <= gpu_hours]
    ordered = sorted(curve, key=lambda one: one.setting)
    for one, other in itertools.pairwise(ordered):
        low, high = sorted((one, other), key=lambda each: each.gpu_hours)
        if low.gpu_hours < gpu_hours < high.gpu_hours:
            share = (gpu_hours - low.gpu_hours) / (high.gpu_hours - low.gpu_hours)
            found.append(low.attainment + share * (high.attainment - low.attainment))
    return max(found, default=None)


def in_weather(job: Job, variant: str) -> Job:
    """The same under another variant."""
    return replace(job, variant=variant)


def _rank(tried: Tried) -> tuple[bool, float]:
    reached = tried.attainment >= TARGET
    return not reached, tried.gpu_hours if reached else -tried.attainment


def _neighbours(grid: Sequence[float], setting: float) -> list[float]:
    at = grid.index(setting)
    return [grid[k] for k in (at - 1, at + 1) if 0 <= k < len(grid)]


def _around(known: Sequence[float], setting: float) -> list[float]:
    """The searched settings on both sides."""
    at = known.index(setting)
    return [known[k] for k in (at - 1, at + 1) if 0 <= k < len(known)]


def _beyond(known: Sequence[float], setting: float) -> float | None:
    """The next setting outside the known ones, in their own ratio; None where the setting is not at an edge."""
    if len(known) < 2:
        return None
    if setting == known[0]:
        return known[0] * known[0] / known[1]
    if setting == known[-1]:
        return known[-1] * known[-1] / known[-2]
    return None
