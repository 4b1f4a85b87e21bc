"""Which figures a bench finds, in which order: the tracks' boards, from plans that all run at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from sluice_sim.laws.registry import LAWS
from sluice_sim.tracks.job import Job
from sluice_sim.tracks.plan import (
    TARGET,
    Clairvoyant,
    Found,
    Plan,
    Tried,
    clairvoyant,
    place,
    placed,
    static_peak,
)
from sluice_sim.tracks.report import OWN, Board
from sluice_sim.tracks.runner import Runner
from sluice_sim.tracks.tasks import endless_hit_ratio
from sluice_sim.tracks.track import Track, WindowName, read_track
from sluice_sim.tracks.variants import VARIANTS

ROBUST: Final = ("T2", "T4")
CHANGES_NEED: Final = ("cold start", "steps", "seed")  # weather that the clairvoyant must be searched again for
STRICTER: Final = (1.0, 0.5, 0.2, 0.1)  # of our knob, tried in this order where the default misses the target


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What to measure."""

    tracks: tuple[str, ...]
    laws: tuple[str, ...] = tuple(LAWS)
    short: bool = True
    robust: bool = False

    @property
    def train(self) -> WindowName:
        """Where knobs are turned."""
        return "short_train" if self.short else "train"

    @property
    def test(self) -> WindowName:
        """Where laws are judged."""
        return "short_test" if self.short else "test"


def measured(wish: Wish, runner: Runner) -> list[Board]:
    """One board per track, in order."""
    boards = [Board(read_track(name)) for name in wish.tracks]
    runner.run([_board(board, wish) for board in boards])
    if wish.robust:
        runner.run([_robust(board, wish) for board in boards if board.track.name in ROBUST])
    return boards


def bars(boards: Sequence[Board]) -> dict[str, bool]:
    """What the score must reach, by sentence: whether it does."""
    found: dict[str, bool] = {}
    for board in boards:
        name = board.track.name
        if board.clairvoyant is None:
            continue
        costs = {one.law: one.gpu_hours for one in board.laws}
        own = [one for one in board.laws if one.law == "sluice"]
        peers = [cost for law, cost in costs.items() if law not in OWN and cost is not None]
        at = own[0].default_gpu_hours if own else None
        ratio = None if at is None else at / board.clairvoyant.gpu_hours
        reached = {"plain": board.clairvoyant.found["attainment"], **board.weather}
        worst = min(reached, key=lambda variant: reached[variant])
        found[f"{name}: the clairvoyant itself reaches 99 % (at its worst {reached[worst]:.2%}, {worst})"] = (
            reached[worst] >= TARGET
        )
        found[f"{name}: no law beats the clairvoyant"] = all(
            cost is None or cost >= board.clairvoyant.gpu_hours for cost in costs.values()
        )
        found[
            f"{name}: ours at its defaults is the cheapest at 99 % (best tuned peer {_of(peers, board)}, ours {_of([at], board)})"
        ] = at is not None and at <= min(peers, default=at)
        if name == "T1":
            found["T1: R99 of 1.15 or less"] = ratio is not None and ratio <= 1.15
        if name == "T4" and own:
            default = own[0].default
            found[
                f"T4: 99 % at 5.93 replicas or fewer (ours {default['attainment']:.2%} at {default['replicas_mean']:.2f})"
            ] = default["attainment"] >= TARGET and default["replicas_mean"] <= 5.93
        if name == "T3" and own and board.hit_bound:
            hits = own[0].default["hit_ratio"] / board.hit_bound
            found[f"T3: 95 % of an endless cache's hits (ours {hits:.1%})"] = hits >= 0.95
    for board in boards:
        if "sluice" in board.overload:
            extra = board.overload["sluice"]["extra"]
            found[f"T5: 92.5 % of the capacity bound (ours {extra['of_bound']:.1%})"] = extra["of_bound"] >= 0.925
            found[f"T5: 99 % of high priority good (ours {extra['high_good']:.1%})"] = extra["high_good"] >= 0.99
            found["T5: fairness gap within its bound"] = extra["fairness_gap"] <= extra["fairness_bound"]
        ours = [value for value in board.robust.get("sluice", {}).values() if value is not None]
        if board.robust:
            whole = len(ours) == len(board.robust["sluice"])
            name = board.track.name
            found[f"{name}: median R99 over the variants 1.25 or less"] = bool(ours) and median(ours) <= 1.25
            found[f"{name}: worst R99 over the variants 1.5 or less"] = whole and max(ours) <= 1.5
    return found


def _board(board: Board, wish: Wish) -> Plan:
    """All of one track."""
    track = board.track
    if track.overload is not None:
        laws = [law for law in wish.laws if law in (*OWN, "llm-d-slo", "hpa-running", "kpa", "dynamo-load")]
        found = yield [Job(track=track.name, window=wish.test, law=law) for law in laws]
        board.overload = dict(zip(laws, found, strict=True))
        return
    yield from _together(
        [
            _note(board, "clairvoyant", clairvoyant(track, wish.test)),
            _note(board, "static", static_peak(track, wish.test)),
            *(
                _law(board, place(track, law, wish.train, wish.test, whole_curve=law == "sluice" and not wish.short))
                for law in wish.laws
            ),
        ]
    )
    if track.routing == "prefix_aware":
        board.hit_bound = endless_hit_ratio(track, wish.test)


def _together(plans: Sequence[Plan]) -> Plan:
    """Drive several plans as one: each round asks for what all of them want."""
    asked: list[tuple[Plan, Sequence[Any]]] = [(plan, tasks) for plan in plans if (tasks := _start(plan)) is not None]
    while asked:
        results = yield [task for _, tasks in asked for task in tasks]
        again, at = [], 0
        for plan, tasks in asked:
            part = results[at : at + len(tasks)]
            at += len(tasks)
            try:
                again.append((plan, plan.send(part)))
            except StopIteration:
                continue
        asked = again


def _start(plan: Plan) -> Sequence[Any] | None:
    try:
        return next(plan)
    except StopIteration:
        return None


def _note(board: Board, name: str, plan: Plan) -> Plan:
    setattr(board, name, (yield from plan))


def _law(board: Board, plan: Plan) -> Plan:
    board.laws.append((yield from plan))


def _robust(board: Board, wish: Wish) -> Plan:
    """Ours at its defaults and the best tuned peer under every variant, beside a clairvoyant of the same weather."""
    track = board.track
    peers = [one for one in board.laws if one.law not in OWN and one.gpu_hours is not None]
    best = min(peers, key=lambda one: one.gpu_hours or 0.0, default=None)
    for variant in VARIANTS:
        known: Clairvoyant | None = board.clairvoyant
        if variant.startswith(CHANGES_NEED):
            known = yield from clairvoyant(track, wish.test, variant)
            board.weather[variant] = known.found["attainment"]
        if known is None:
            continue
        cost = yield from _in_weather(track, wish.test, "sluice", STRICTER, variant)
        board.robust.setdefault("sluice", {})[variant] = None if cost is None else cost / known.gpu_hours
        if best is not None:
            settings = _stricter(best.tuned.setting, best.curve)
            cost = yield from _in_weather(track, wish.test, best.law, settings, variant)
            board.robust.setdefault(best.law, {})[variant] = None if cost is None else cost / known.gpu_hours


def _in_weather(track: Track, window: WindowName, law: str, settings: Sequence[float], variant: str) -> Plan:
    """GPU-hours at the target under a variant: the first setting's own, or by the curve towards stricter ones."""
    curve: list[Tried] = []
    for setting in settings:
        found: Sequence[Found] = yield [Job(track=track.name, window=window, law=law, setting=setting, variant=variant)]
        curve.append(Tried(setting, found[0]))
        if curve[-1].attainment >= TARGET:
            break
    return placed(curve[0], curve)


def _stricter(chosen: float, curve: Sequence[Tried]) -> list[float]:
    """The chosen setting, then those that reached more on the plain track, the nearest first."""
    at = next(one for one in curve if one.setting == chosen)
    more = sorted((one for one in curve if one.attainment > at.attainment), key=lambda one: one.gpu_hours)
    return [chosen, *(one.setting for one in more[:3])]


def _of(costs: Sequence[float | None], board: Board) -> str:
    found = [cost for cost in costs if cost is not None]
    if not found or board.clairvoyant is None:
        return "never"
    return f"{min(found) / board.clairvoyant.gpu_hours:.3f}"
