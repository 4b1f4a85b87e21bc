"""How each figure of the score is found, as generators: each asks for tasks and is sent their results.

So a hundred searches wait for each other's processors, not for each other, and a bench that was stopped asks for the
same tasks again and finds them in the store.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sluice_sim.laws.registry import LAWS
from sluice_sim.score import HOUR, cost_at
from sluice_sim.tracks.effort import Effort
from sluice_sim.tracks.hindsight import Found, Plan
from sluice_sim.tracks.job import STATIC, Job
from sluice_sim.tracks.knob import FIRST, TARGET, Tried, around, ranked, spaced, wanting
from sluice_sim.tracks.tasks import Bound
from sluice_sim.tracks.track import Track, WindowName

MOST_STATIC: Final = 4  # times the track's most replicas: what a constant fleet is tried up to


class Unreachable(ValueError):
    """No constant number of replicas keeps the track's promise. The message says how far they came."""


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


def static_peak(track: Track, window: WindowName) -> Plan:
    """The fewest replicas that, always there, reach the target. Returns (replicas, Found). Raises Unreachable where
    MOST_STATIC times the track's most do not."""
    (bound,) = yield [Bound(track.name, window)]
    hours = track.window(window).seconds / HOUR * track.gpus
    high = max(track.least, int(bound["gpu_hours"] / hours))  # fewer have not the time for the work
    low = high - 1  # low fails, high is tried
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
    """Try settings on the train window, as many as the effort allows at most. Returns all Tried, the best first."""
    knob, most = LAWS[law].knob, effort.runs_of(law)
    tried: dict[float, Tried] = {}
    settings = spaced(knob.grid, min(most, FIRST)) if most else []
    while settings := settings[: most - len(tried)]:
        found = yield [Job(track=track.name, window=effort.train, law=law, setting=one) for one in settings]
        tried.update({one: Tried(one, value) for one, value in zip(settings, found, strict=True)})
        settings = wanting(knob, tried)
    return tuple(ranked(knob, tried))


def place(track: Track, law: str, effort: Effort) -> Plan:
    """Tune on the train window, judge on the test window, every law by the same rule: its default, the tuned setting, and
    the one beside it, cheaper where the tuned one reaches the target, dearer ones in turn where it does not until one
    does. Returns a Placed."""
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
    dearer, known = stricter(LAWS[law].knob.grid, searched), sorted(one.setting for one in searched)
    if judged[chosen].reached:
        if effort.near:  # what a little less money buys
            yield from judge([one for one in around(known, chosen) if one not in dearer])
    else:
        # A default further off that reaches it ends nothing: on the way there the curve would be a line across untried ones.
        for setting in dearer[: effort.more]:
            yield from judge([setting])
            if judged[setting].reached:
                break
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


def stricter(grid: Sequence[float], searched: Sequence[Tried]) -> list[float]:
    """The settings beyond the best of those searched, on the side where more replicas were bought, the nearest first;
    none where even the best never reached the target."""
    if len(searched) < 2 or not searched[0].reached:
        return []
    top, known = searched[0], {one.setting: one for one in searched}
    dearest = max(
        (known[one] for one in around(sorted(known), top.setting)), key=lambda one: (one.gpu_hours, one.attainment)
    )
    up = (dearest.setting > top.setting) == (dearest.gpu_hours >= top.gpu_hours)
    beyond = [one for one in {*grid, *known} if (one > top.setting) == up and one != top.setting]
    return sorted(beyond, key=lambda one: abs(one - top.setting))


def placed(tried: Tried, curve: Sequence[Tried]) -> float | None:
    """What a law costs at the target: its own cost where it reaches it, else by its knob's curve."""
    if tried.attainment >= TARGET:
        return tried.gpu_hours
    return cost_at([one.point for one in curve], TARGET)


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


def for_weather(best: Placed, most: int) -> list[float]:
    """The tuned setting, then stricter ones for weather in which it misses the target: `most` in all at most."""
    return [best.tuned.setting, *stricter(LAWS[best.law].knob.grid, best.train)][:most]
