"""Which figures the benchmark computes, and in which order. The plans of all tracks run concurrently."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sluice_sim.benchmark.report.table import OWN, TrackScore
from sluice_sim.benchmark.run.effort import SHORT, Effort
from sluice_sim.benchmark.run.job import Job
from sluice_sim.benchmark.run.plan import cost_at_target, score_law, static_peak, variant_settings
from sluice_sim.benchmark.run.provenance import other_digests
from sluice_sim.benchmark.run.runner import Runner
from sluice_sim.benchmark.run.tasks import Task, endless_hit_ratio
from sluice_sim.benchmark.search.clairvoyant import Plan, TaskResult, clairvoyant
from sluice_sim.benchmark.search.knob import TARGET, Trial
from sluice_sim.benchmark.track import Track, WindowName, read_track
from sluice_sim.policies.registry import LAWS

CAPACITY_VARIANTS: Final = ("cold start", "steps", "seed")  # variants for which the clairvoyant is searched again
VARIANT_RUNS: Final = "variants"  # name of the variants' results in `TrackScore.other_code`
STRICTER: Final = (1.0, 0.5, 0.2, 0.1)  # multiples of sluice's knob, tried in this order until the target is reached


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkScope:
    """What the benchmark measures. `robust`: also the variants of the robustness score."""

    tracks: tuple[str, ...]
    laws: tuple[str, ...] = tuple(LAWS)
    effort: Effort = SHORT
    robust: bool = True


def measure_tracks(scope: BenchmarkScope, runner: Runner) -> list[TrackScore]:
    """The scores of the tracks, in their order."""
    scores = [TrackScore(read_track(name)) for name in scope.tracks if name not in scope.effort.skipped_tracks]
    runner.run([plan for score in scores for plan in _plans(score, scope)])
    for score in scores:
        score.laws.sort(key=lambda one: scope.laws.index(one.law))
    if scope.robust:
        with_variants = [score for score in scores if score.track.name in scope.effort.variant_tracks]
        runner.run([plan for score in with_variants for plan in _variant_plans(score, scope)])
    return scores


def _plans(score: TrackScore, scope: BenchmarkScope) -> list[Plan]:
    """All plans of one track. They are independent; the plan with the most sequential steps comes first."""
    track = score.track
    if track.overload is not None:
        return [_overload(score, scope)]
    searched = track.name in scope.effort.clairvoyant_tracks
    if track.routing == "prefix_aware":
        score.hit_bound = endless_hit_ratio(track, scope.effort.test)
    return [
        *([_store_result(score, "clairvoyant", clairvoyant(track, scope.effort.test))] if searched else []),
        _store_result(score, "static", static_peak(track, scope.effort.test)),
        *(_score_one_law(score, law, score_law(track, law, scope.effort)) for law in scope.laws),
    ]


def _overload(score: TrackScore, scope: BenchmarkScope) -> Plan:
    track, window = score.track, scope.effort.test
    laws = [law for law in scope.laws if law in scope.effort.overload_laws]
    jobs = {law: Job(track=track.name, window=window, law=law) for law in laws}
    if track.load.waves:  # what each dial achieves alone: constant fleets with admission
        jobs = {law: job for law, job in jobs.items() if law in OWN}
        for count in range(1, track.most) if "admission-only" in jobs else ():
            name, setting = f"admission-only, {count} of {track.most} replicas", count / track.most
            jobs[name] = Job(track=track.name, window=window, law="admission-only", setting=setting)
    found = yield list(jobs.values())
    score.overload = dict(zip(jobs, found, strict=True))
    for law, one in score.overload.items():
        score.note_other_code(law, other_digests([one]))


def _store_result(score: TrackScore, name: str, plan: Plan) -> Plan:
    setattr(score, name, (yield from _record_provenance(score, name, plan)))


def _score_one_law(score: TrackScore, law: str, plan: Plan) -> Plan:
    score.laws.append((yield from _record_provenance(score, law, plan)))


def _record_provenance(
    score: TrackScore, name: str, plan: Plan
) -> Generator[Sequence[Task], Sequence[TaskResult], Any]:
    """Run the plan, and record on the score under `name` which other code measured its pieces."""
    sent: Sequence[TaskResult] | None = None
    while True:
        try:
            tasks = next(plan) if sent is None else plan.send(sent)
        except StopIteration as end:
            return end.value
        sent = yield tasks
        score.note_other_code(name, other_digests(sent))


def _variant_plans(score: TrackScore, scope: BenchmarkScope) -> list[Plan]:
    """Plans that run sluice at its defaults and the best tuned peer under every variant.

    Each cost is divided by the clairvoyant's; a variant that changes the needed capacity has its own clairvoyant.
    """
    peers = [one for one in score.laws if one.law not in OWN and one.gpu_hours is not None]
    best = min(peers, key=lambda one: one.gpu_hours or 0.0, default=None)
    settings: dict[str, Sequence[float]] = {"sluice": STRICTER}
    if best is not None:
        settings[best.law] = variant_settings(best, len(STRICTER))
    if score.clairvoyant is not None:
        score.robust = {law: dict.fromkeys(scope.effort.variants) for law in settings}
    return [
        _record_provenance(score, VARIANT_RUNS, _variant_plan(score, scope, variant, settings))
        for variant in scope.effort.variants
    ]


def _variant_plan(
    score: TrackScore, scope: BenchmarkScope, variant: str, settings: Mapping[str, Sequence[float]]
) -> Plan:
    track, known = score.track, score.clairvoyant
    if variant.startswith(CAPACITY_VARIANTS):
        known = yield from clairvoyant(track, scope.effort.test, variant)
        score.variant_attainment[variant] = known.result["attainment"]
    if known is None:
        return
    for law, tried in settings.items():
        cost = yield from _cost_under_variant(track, scope.effort.test, law, tried, variant)
        score.robust.setdefault(law, {})[variant] = None if cost is None else cost / known.gpu_hours


def _cost_under_variant(track: Track, window: WindowName, law: str, settings: Sequence[float], variant: str) -> Plan:
    """GPU-hours at the target under a variant: the cost of the first setting, or interpolated to stricter settings."""
    curve: list[Trial] = []
    for setting in settings:
        found: Sequence[TaskResult] = yield [
            Job(track=track.name, window=window, law=law, setting=setting, variant=variant)
        ]
        curve.append(Trial(setting, found[0]))
        if curve[-1].attainment >= TARGET:
            break
    return cost_at_target(curve[0], curve)
