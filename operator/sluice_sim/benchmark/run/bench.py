"""Which figures the benchmark computes, and in which order. The plans of all tracks run concurrently."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from sluice_sim.benchmark.report.table import OWN, Board
from sluice_sim.benchmark.run.effort import SHORT, Effort
from sluice_sim.benchmark.run.job import Job
from sluice_sim.benchmark.run.plan import attained_at, for_weather, place, placed, static_peak
from sluice_sim.benchmark.run.provenance import others
from sluice_sim.benchmark.run.runner import Runner
from sluice_sim.benchmark.run.tasks import Task, endless_hit_ratio
from sluice_sim.benchmark.search.hindsight import Clairvoyant, Found, Plan, clairvoyant
from sluice_sim.benchmark.search.knob import TARGET, Tried
from sluice_sim.benchmark.track import Track, WindowName, read_track
from sluice_sim.policies.registry import LAWS

CHANGES_NEED: Final = ("cold start", "steps", "seed")  # variants for which the clairvoyant is searched again
OTHER_WEATHER: Final = "other weather"
STRICTER: Final = (1.0, 0.5, 0.2, 0.1)  # multiples of sluice's knob, tried in this order until the target is reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What to measure."""

    tracks: tuple[str, ...]
    laws: tuple[str, ...] = tuple(LAWS)
    effort: Effort = SHORT
    robust: bool = True


def measured(wish: Wish, runner: Runner) -> list[Board]:
    """One board per track, in the order of the tracks."""
    boards = [Board(read_track(name)) for name in wish.tracks if name not in wish.effort.skipped]
    runner.run([plan for board in boards for plan in _plans(board, wish)])
    for board in boards:
        board.laws.sort(key=lambda one: wish.laws.index(one.law))
    if wish.robust:
        in_weather = [board for board in boards if board.track.name in wish.effort.weather]
        runner.run([plan for board in in_weather for plan in _weathers(board, wish)])
    return boards


def bars(boards: Sequence[Board]) -> dict[str, bool]:
    """The acceptance criteria of the score: sentence → whether it holds. What was not searched has no criterion."""
    found: dict[str, bool] = {}
    for board in boards:
        if board.clairvoyant is not None:
            found |= _against_clairvoyant(board, board.clairvoyant)
        if board.laws:
            found |= _laws(board)
    for board in boards:
        if "sluice" in board.overload:
            found |= _served(board) if not board.track.load.waves else _dials(board)
        ours = [value for value in board.robust.get("sluice", {}).values() if value is not None]
        if board.robust:
            whole = len(ours) == len(board.robust["sluice"])
            name = board.track.name
            found[f"{name}: median R99 over the variants 1.25 or less"] = bool(ours) and median(ours) <= 1.25
            found[f"{name}: worst R99 over the variants 1.5 or less"] = whole and max(ours) <= 1.5
    return found


def _against_clairvoyant(board: Board, known: Clairvoyant) -> dict[str, bool]:
    name = board.track.name
    reached = {"plain": known.found["attainment"], **board.weather}
    worst = min(reached, key=lambda variant: reached[variant])
    found = {
        f"{name}: the clairvoyant itself reaches 99 % (at its worst {reached[worst]:.2%}, {worst})": (
            reached[worst] >= TARGET
        ),
        f"{name}: nothing beats the clairvoyant": min(_ratios(board, known), default=1.0) >= 1.0,
    }
    if name == "T1":
        own = next((one.default_gpu_hours for one in board.laws if one.law == "sluice"), None)
        found["T1: R99 of 1.15 or less"] = own is not None and own / known.gpu_hours <= 1.15
    return found


def _ratios(board: Board, known: Clairvoyant) -> list[float]:
    """Ratio to the clairvoyant of all compared costs: tuned and untuned laws, the static peak, and the variants."""
    costs = [cost for one in board.laws for cost in (one.gpu_hours, one.default_gpu_hours)]
    costs += [board.static[1]["gpu_hours"]] if board.static is not None else []
    weather = [one for variants in board.robust.values() for one in variants.values()]
    return [one / known.gpu_hours for one in costs if one is not None] + [one for one in weather if one is not None]


def _laws(board: Board) -> dict[str, bool]:
    name = board.track.name
    own = next((one for one in board.laws if one.law == "sluice"), None)
    peers = [one.gpu_hours for one in board.laws if one.law not in OWN and one.gpu_hours is not None]
    at = own.default_gpu_hours if own is not None else None
    found = {
        f"{name}: ours at its defaults is the cheapest at 99 % "
        f"(best tuned peer {_of(peers, board)}, ours {_of([at], board)})": at is not None
        and at <= min(peers, default=at)
    }
    if own is None:
        return found
    if name == "T4":
        attained, replicas = own.default["attainment"], own.default["replicas_mean"]
        said = f"T4: 99 % at 5.93 replicas or fewer (ours {attained:.2%} at {replicas:.2f})"
        found[said] = attained >= TARGET and replicas <= 5.93
    if name == "T3" and board.hit_bound:
        hits = own.default["hit_ratio"] / board.hit_bound
        found[f"T3: 95 % of an endless cache's hits (ours {hits:.1%})"] = hits >= 0.95
    return found


def _plans(board: Board, wish: Wish) -> list[Plan]:
    """All plans of one track. They are independent; the plan with the most sequential steps comes first."""
    track = board.track
    if track.overload is not None:
        return [_overload(board, wish)]
    searched = track.name in wish.effort.searched
    if track.routing == "prefix_aware":
        board.hit_bound = endless_hit_ratio(track, wish.effort.test)
    return [
        *([_note(board, "clairvoyant", clairvoyant(track, wish.effort.test))] if searched else []),
        _note(board, "static", static_peak(track, wish.effort.test)),
        *(_law(board, law, place(track, law, wish.effort)) for law in wish.laws),
    ]


def _overload(board: Board, wish: Wish) -> Plan:
    track, window = board.track, wish.effort.test
    laws = [law for law in wish.laws if law in wish.effort.overload]
    jobs = {law: Job(track=track.name, window=window, law=law) for law in laws}
    if track.load.waves:  # what each actuator achieves alone: constant fleets with admission
        jobs = {law: job for law, job in jobs.items() if law in OWN}
        for count in range(1, track.most) if "admission-only" in jobs else ():
            name, setting = f"admission-only, {count} of {track.most} replicas", count / track.most
            jobs[name] = Job(track=track.name, window=window, law="admission-only", setting=setting)
    found = yield list(jobs.values())
    board.overload = dict(zip(jobs, found, strict=True))
    for law, one in board.overload.items():
        board.note_others(law, others([one]))


def _note(board: Board, name: str, plan: Plan) -> Plan:
    setattr(board, name, (yield from _watched(board, name, plan)))


def _law(board: Board, law: str, plan: Plan) -> Plan:
    board.laws.append((yield from _watched(board, law, plan)))


def _watched(board: Board, name: str, plan: Plan) -> Generator[Sequence[Task], Sequence[Found], Any]:
    """Run the plan, and record on the board under `name` which other code measured its pieces."""
    sent: Sequence[Found] | None = None
    while True:
        try:
            tasks = next(plan) if sent is None else plan.send(sent)
        except StopIteration as end:
            return end.value
        sent = yield tasks
        board.note_others(name, others(sent))


def _weathers(board: Board, wish: Wish) -> list[Plan]:
    """Plans that run sluice at its defaults and the best tuned peer under every variant.

    Each cost is divided by the clairvoyant's; a variant that changes the needed capacity has its own clairvoyant.
    """
    peers = [one for one in board.laws if one.law not in OWN and one.gpu_hours is not None]
    best = min(peers, key=lambda one: one.gpu_hours or 0.0, default=None)
    settings: dict[str, Sequence[float]] = {"sluice": STRICTER}
    if best is not None:
        settings[best.law] = for_weather(best, len(STRICTER))
    if board.clairvoyant is not None:
        board.robust = {law: dict.fromkeys(wish.effort.variants) for law in settings}
    return [
        _watched(board, OTHER_WEATHER, _weather(board, wish, variant, settings)) for variant in wish.effort.variants
    ]


def _weather(board: Board, wish: Wish, variant: str, settings: Mapping[str, Sequence[float]]) -> Plan:
    track, known = board.track, board.clairvoyant
    if variant.startswith(CHANGES_NEED):
        known = yield from clairvoyant(track, wish.effort.test, variant)
        board.weather[variant] = known.found["attainment"]
    if known is None:
        return
    for law, tried in settings.items():
        cost = yield from _in_weather(track, wish.effort.test, law, tried, variant)
        board.robust.setdefault(law, {})[variant] = None if cost is None else cost / known.gpu_hours


def _in_weather(track: Track, window: WindowName, law: str, settings: Sequence[float], variant: str) -> Plan:
    """GPU-hours at the target under a variant: the cost of the first setting, or interpolated to stricter settings."""
    curve: list[Tried] = []
    for setting in settings:
        found: Sequence[Found] = yield [Job(track=track.name, window=window, law=law, setting=setting, variant=variant)]
        curve.append(Tried(setting, found[0]))
        if curve[-1].attainment >= TARGET:
            break
    return placed(curve[0], curve)


def _served(board: Board) -> dict[str, bool]:
    name, extra = board.track.name, board.overload["sluice"]["extra"]
    return {
        f"{name}: 92.5 % of the capacity bound (ours {extra['of_bound']:.1%})": extra["of_bound"] >= 0.925,
        f"{name}: 99 % of high priority good (ours {extra['high_good']:.1%})": extra["high_good"] >= 0.99,
        f"{name}: fairness gap within its bound": extra["fairness_gap"] <= extra["fairness_bound"],
    }


def _dials(board: Board) -> dict[str, bool]:
    """Both actuators against each one alone at the same GPU-hours.

    The single-actuator results are interpolated linearly between constant fleets, because a fleet may change its size
    during the window. If all of them cost more than both actuators together, each of them must serve less.
    """
    ours, hours = board.overload["sluice"]["attainment"], board.overload["sluice"]["gpu_hours"]
    beaten, said = True, [f"ours {ours:.1%}"]
    for law in ("admission-only", "replicas-only"):
        tried = [found for name, found in board.overload.items() if name.startswith(law)]
        alone = attained_at([Tried(found["gpu_hours"], found) for found in tried], hours)
        if alone is None:  # no tried setting is as cheap
            alone = max((found["attainment"] for found in tried), default=0.0)
        beaten = beaten and bool(tried) and alone < ours
        said.append(f"{law} {alone:.1%}")
    sentence = f"{board.track.name}: both dials serve more than either alone for the same GPU-hours ({', '.join(said)})"
    return {sentence: beaten}


def _of(costs: Sequence[float | None], board: Board) -> str:
    found = [cost for cost in costs if cost is not None]
    if not found:
        return "never"
    if board.clairvoyant is None:
        return f"{min(found):.2f} GPU-hours"
    return f"{min(found) / board.clairvoyant.gpu_hours:.3f}"
