"""Plans that compute each figure of the score, as generators that yield tasks and receive their results.

Concurrent plans share the processors without waiting for one another. A benchmark that was stopped yields the same
tasks again and finds their results in the store.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sluice_sim.benchmark.run.effort import Effort
from sluice_sim.benchmark.run.job import STATIC, Job
from sluice_sim.benchmark.run.tasks import Bound
from sluice_sim.benchmark.search.hindsight import Found, Plan
from sluice_sim.benchmark.search.knob import FIRST, TARGET, Tried, around, ranked, spaced, wanting
from sluice_sim.benchmark.track import Track, WindowName
from sluice_sim.policies.registry import LAWS
from sluice_sim.results.score import HOUR, cost_at

MOST_STATIC: Final = 4  # a static fleet has at most this many times the track's most replicas


class Unreachable(ValueError):
    """No constant number of replicas reaches the track's SLO target. The message has the best attainment."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The results of a law on a track: at its default, tuned, and its cost at 99 % attainment."""

    law: str
    track: str
    default: Found
    tuned: Tried
    curve: tuple[Tried, ...]  # all settings judged on the test window
    train: tuple[Tried, ...]
    gpu_hours: float | None  # at 99 % attainment; None if never reached
    default_gpu_hours: float | None  # the same, starting from the default setting


def static_peak(track: Track, window: WindowName) -> Plan:
    """The smallest constant fleet that reaches the target, as (replicas, Found).

    Raises Unreachable if MOST_STATIC times the track's most replicas do not reach it.
    """
    (bound,) = yield [Bound(track.name, window)]
    hours = track.window(window).seconds / HOUR * track.gpus
    high = max(track.least, int(bound["gpu_hours"] / hours))  # a smaller fleet has too little capacity for the work
    low = high - 1  # invariant: `low` fails, `high` is tried
    seen: dict[int, Found] = {}
    while True:
        (seen[high],) = yield [Job(track=track.name, window=window, law=STATIC, setting=float(high))]
        if seen[high]["attainment"] >= TARGET:
            break
        if high >= MOST_STATIC * track.most:
            raise Unreachable(
                f"{track.name} {window}: {high} replicas that are always there serve {seen[high]['attainment']:.2%} of the "
                f"requests well, not {TARGET:.0%}: its SLO or its load in tracks/{track.name}.toml cannot be kept"
            )
        low, high = high, min(high * 2, MOST_STATIC * track.most)
    while high - low > 1:
        middle = (low + high) // 2
        (seen[middle],) = yield [Job(track=track.name, window=window, law=STATIC, setting=float(middle))]
        low, high = (low, middle) if seen[middle]["attainment"] >= TARGET else (middle, high)
    return high, seen[high]


def tune(track: Track, law: str, effort: Effort) -> Plan:
    """Try settings on the train window, at most `effort.runs_of(law)` of them. Returns all Tried, the best first."""
    knob, most = LAWS[law].knob, effort.runs_of(law)
    tried: dict[float, Tried] = {}
    settings = spaced(knob.grid, min(most, FIRST)) if most else []
    while settings := settings[: most - len(tried)]:
        found = yield [Job(track=track.name, window=effort.train, law=law, setting=one) for one in settings]
        tried.update({one: Tried(one, value) for one, value in zip(settings, found, strict=True)})
        settings = wanting(knob, tried)
    return tuple(ranked(knob, tried))


def place(track: Track, law: str, effort: Effort) -> Plan:
    """Tune on the train window and judge on the test window, with the same rule for every law. Returns a Placed.

    The default and the tuned setting are always judged. If the tuned setting reaches the target, the adjacent cheaper
    setting is judged too; if it misses, stricter settings are judged in turn until one reaches the target.
    """
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
        if effort.near:  # shows the attainment at a slightly lower cost
            yield from judge([one for one in around(known, chosen) if one not in dearer])
    else:
        # A distant default that reaches the target does not end the search: the curve would interpolate over untried
        # settings.
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
    """The settings beyond the best searched one, on the side with more replicas, the nearest first.

    Empty if not even the best reaches the target.
    """
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
    """GPU-hours of a law at the target: the setting's own if it reaches the target, else interpolated on the curve."""
    if tried.attainment >= TARGET:
        return tried.gpu_hours
    return cost_at([one.point for one in curve], TARGET)


def attained_at(curve: Sequence[Tried], gpu_hours: float) -> float | None:
    """The best attainment at `gpu_hours` or less, interpolated along the knob; None if no setting is as cheap."""
    found = [one.attainment for one in curve if one.gpu_hours <= gpu_hours]
    ordered = sorted(curve, key=lambda one: one.setting)
    for one, other in itertools.pairwise(ordered):
        low, high = sorted((one, other), key=lambda each: each.gpu_hours)
        if low.gpu_hours < gpu_hours < high.gpu_hours:
            share = (gpu_hours - low.gpu_hours) / (high.gpu_hours - low.gpu_hours)
            found.append(low.attainment + share * (high.attainment - low.attainment))
    return max(found, default=None)


def for_weather(best: Placed, most: int) -> list[float]:
    """The tuned setting, then stricter ones for variants in which it misses the target; at most `most` in total."""
    return [best.tuned.setting, *stricter(LAWS[best.law].knob.grid, best.train)][:most]
