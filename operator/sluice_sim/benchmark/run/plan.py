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
from sluice_sim.benchmark.run.tasks import WorkBoundTask
from sluice_sim.benchmark.search.clairvoyant import Plan, TaskResult
from sluice_sim.benchmark.search.knob import FIRST_ROUND, TARGET, Trial, adjacent, evenly_spaced, next_settings, ranked
from sluice_sim.benchmark.track import Track, WindowName
from sluice_sim.policies.registry import LAWS
from sluice_sim.results.score import HOUR, cost_at

MOST_STATIC: Final = 4  # a static fleet has at most this many times the track's most replicas


class Unreachable(ValueError):
    """No constant number of replicas reaches the track's SLO target. The message has the best attainment."""


@dataclass(frozen=True, slots=True)
class LawScore:
    """The results of a law on a track: at its default, tuned, and its cost at 99 % attainment."""

    law: str
    track: str
    default: TaskResult
    tuned: Trial
    curve: tuple[Trial, ...]  # all settings judged on the test window
    train: tuple[Trial, ...]
    gpu_hours: float | None  # at 99 % attainment; None if never reached
    default_gpu_hours: float | None  # the same, starting from the default setting


def static_peak(track: Track, window: WindowName) -> Plan:
    """The smallest constant fleet that reaches the target, as (replicas, Found).

    Raises Unreachable if MOST_STATIC times the track's most replicas do not reach it.
    """
    (bound,) = yield [WorkBoundTask(track.name, window)]
    hours = track.window(window).seconds / HOUR * track.gpus
    high = max(track.least, int(bound["gpu_hours"] / hours))  # a smaller fleet has too little capacity for the work
    low = high - 1  # invariant: `low` fails, `high` is tried
    seen: dict[int, TaskResult] = {}
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
    """Try settings on the train window, at most `effort.tuning_runs_of(law)` of them. Returns all trials, the best first."""
    knob, most = LAWS[law].knob, effort.tuning_runs_of(law)
    tried: dict[float, Trial] = {}
    settings = evenly_spaced(knob.grid, min(most, FIRST_ROUND)) if most else []
    while settings := settings[: most - len(tried)]:
        found = yield [Job(track=track.name, window=effort.train, law=law, setting=one) for one in settings]
        tried.update({one: Trial(one, value) for one, value in zip(settings, found, strict=True)})
        settings = next_settings(knob, tried)
    return tuple(ranked(knob, tried))


def score_law(track: Track, law: str, effort: Effort) -> Plan:
    """Tune on the train window and judge on the test window, with the same rule for every law. Returns a LawScore.

    The default and the tuned setting are always judged. If the tuned setting reaches the target, the adjacent cheaper
    setting is judged too; if it misses, stricter settings are judged in turn until one reaches the target.
    """
    searched: tuple[Trial, ...] = yield from tune(track, law, effort)
    chosen = searched[0].setting if searched else LAWS[law].knob.default
    default = Job(track=track.name, window=effort.test, law=law, series=True)
    on_test: dict[float, Trial] = {}

    def run_on_test(settings: Sequence[float]) -> Plan:
        new = [one for one in settings if one not in on_test]
        jobs = [Job(track=track.name, window=effort.test, law=law, setting=one, series=one == chosen) for one in new]
        found = yield jobs
        on_test.update({one: Trial(one, value) for one, value in zip(new, found, strict=True)})

    (at_default,) = yield [default]
    default_setting = LAWS[law].knob.default
    on_test[default_setting] = Trial(default_setting, at_default)
    yield from run_on_test([chosen])
    dearer, known = stricter_settings(LAWS[law].knob.grid, searched), sorted(one.setting for one in searched)
    if on_test[chosen].reached:
        if effort.judge_adjacent:  # shows the attainment at a slightly lower cost
            yield from run_on_test([one for one in adjacent(known, chosen) if one not in dearer])
    else:
        # A distant default that reaches the target does not end the search: the curve would interpolate over untried
        # settings.
        for setting in dearer[: effort.extra_settings]:
            yield from run_on_test([setting])
            if on_test[setting].reached:
                break
    curve = tuple(on_test[setting] for setting in sorted(on_test))
    return LawScore(
        law=law,
        track=track.name,
        default=at_default,
        tuned=on_test[chosen],
        curve=curve,
        train=searched,
        gpu_hours=cost_at_target(on_test[chosen], curve),
        default_gpu_hours=cost_at_target(on_test[default_setting], curve),
    )


def stricter_settings(grid: Sequence[float], searched: Sequence[Trial]) -> list[float]:
    """The settings beyond the best searched one, on the side with more replicas, the nearest first.

    Empty if not even the best reaches the target.
    """
    if len(searched) < 2 or not searched[0].reached:
        return []
    top, known = searched[0], {one.setting: one for one in searched}
    dearest = max(
        (known[one] for one in adjacent(sorted(known), top.setting)), key=lambda one: (one.gpu_hours, one.attainment)
    )
    up = (dearest.setting > top.setting) == (dearest.gpu_hours >= top.gpu_hours)
    beyond = [one for one in {*grid, *known} if (one > top.setting) == up and one != top.setting]
    return sorted(beyond, key=lambda one: abs(one - top.setting))


def cost_at_target(tried: Trial, curve: Sequence[Trial]) -> float | None:
    """GPU-hours of a law at the target: the setting's own if it reaches the target, else interpolated on the curve."""
    if tried.attainment >= TARGET:
        return tried.gpu_hours
    return cost_at([one.point for one in curve], TARGET)


def attained_at(curve: Sequence[Trial], gpu_hours: float) -> float | None:
    """The best attainment at `gpu_hours` or less, interpolated along the knob; None if no setting is as cheap."""
    found = [one.attainment for one in curve if one.gpu_hours <= gpu_hours]
    ordered = sorted(curve, key=lambda one: one.setting)
    for one, other in itertools.pairwise(ordered):
        low, high = sorted((one, other), key=lambda each: each.gpu_hours)
        if low.gpu_hours < gpu_hours < high.gpu_hours:
            share = (gpu_hours - low.gpu_hours) / (high.gpu_hours - low.gpu_hours)
            found.append(low.attainment + share * (high.attainment - low.attainment))
    return max(found, default=None)


def variant_settings(best: LawScore, most: int) -> list[float]:
    """The tuned setting, then stricter ones for variants in which it misses the target; at most `most` in total."""
    return [best.tuned.setting, *stricter_settings(LAWS[best.law].knob.grid, best.train)][:most]
