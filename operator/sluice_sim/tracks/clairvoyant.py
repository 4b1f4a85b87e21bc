"""The schedule of somebody who knows the future: what every law's GPU-hours are divided by.

Counts per piece of five minutes, each replica launched a cold start early. Windows of three hours are looked at by
themselves: each is run with more than enough replicas and then with one less wherever few requests were missed, which
gives a table of what each piece misses with how many. The cheapest schedule of the whole that these tables allow is found
exactly (`cheapest`, a knapsack over time), and run as a whole; what it missed corrects the tables, and so on. A schedule
that misses too much gets replicas where it misses most. At the end no piece may lose a replica with the attainment still
reached (`hindsight` has the order, `Judge.spare` how that is looked at). It is a feasible schedule, not proven
optimal: tables take pieces for independent but for the starts between them.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from sluice_sim.tracks.judge import Judge
from sluice_sim.tracks.schedule import PIECE, Counts

Table = tuple[dict[int, int], ...]  # per piece: replicas → requests missed
WINDOW_PIECES: Final = 36  # three hours
ROOM: Final = 1.25  # of the work bound: where a search begins
FEW: Final = 0.002  # share of a piece's requests that more replicas need not save
HELPS: Final = 0.9  # one replica more leaves at most this share of the misses, or it is not what they come from
DEEP: Final = 0.1  # share of a piece's requests missed beyond which fewer replicas are not looked at


def table(judge: Judge, first: int, end: int, note: Callable[[str], None] = lambda _: None) -> Table:
    """What the pieces of [first, end) miss with how many replicas: the least of all runs, because a run in which the piece
    before had too few hands its backlog on; where that promises too much, runs of the whole correct it."""
    least, most = judge.track.least, judge.track.most
    counts = [least] * judge.pieces
    for piece in range(first, end):
        counts[piece] = min(most, max(least, math.ceil(ROOM * judge.work(piece) / PIECE) + 1))
    found: Table = tuple({} for _ in range(first, end))

    def run() -> None:
        for options, count, missed in zip(
            found, counts[first:end], judge.misses(tuple(counts), first, end), strict=True
        ):
            options[count] = min(missed, options.get(count, missed))
        note(f"pieces {first}–{end}: {sum(o[c] for o, c in zip(found, counts[first:end], strict=True))} missed")

    def short(piece: int) -> bool:
        """Whether the piece may want one more: it misses some, and the last one that it got was worth it."""
        options, count = found[piece - first], counts[piece]
        if count >= most or options[count] <= FEW * judge.offered(piece):
            return False
        return count - 1 not in options or options[count] <= HELPS * options[count - 1]

    run()
    start = list(counts)
    while late := [piece for piece in range(first, end) if short(piece)]:
        for piece in late:
            counts[piece] += 1
        run()
    counts = start
    while low := [
        piece
        for piece in range(first, end)
        if counts[piece] > least and found[piece - first][counts[piece]] <= DEEP * judge.offered(piece)
    ]:
        for piece in low:
            counts[piece] -= 1
        run()
    return found


def cheapest(tables: Table, budget: int, lead: float, last: float = PIECE) -> Counts:
    """The schedule of the fewest replica-seconds (`schedule.cost`) that misses at most `budget` by the tables; where none
    does, each piece's fewest misses. `last`: seconds of the last piece."""
    costs: dict[int, np.ndarray] = {}  # replicas of the piece → the least cost so far, by how many may be missed
    ways: list[dict[int, np.ndarray]] = []  # the same → replicas of the piece before
    for place, options in enumerate(tables):
        seconds = last if place == len(tables) - 1 else PIECE
        now, way = {}, {}
        for count, missed in options.items():
            if missed > budget:
                continue
            before = list(costs)
            if place == 0:
                best, best_way = np.zeros(budget + 1), np.zeros(budget + 1, dtype=np.int32)
            elif not before:
                continue
            else:
                arrived = np.stack([costs[other] + lead * max(0, count - other) for other in before])
                best, best_way = arrived.min(axis=0), np.array(before, dtype=np.int32)[arrived.argmin(axis=0)]
            whole, from_ = np.full(budget + 1, np.inf), np.zeros(budget + 1, dtype=np.int32)
            whole[missed:] = best[: budget + 1 - missed] + seconds * count
            from_[missed:] = best_way[: budget + 1 - missed]
            now[count], way[count] = whole, from_
        costs = now
        ways.append(way)
    if not costs or not np.isfinite(min(cost[budget] for cost in costs.values())):
        return tuple(min(options, key=lambda count: (options[count], count)) for options in tables)
    left, counts = budget, [min(costs, key=lambda count: (costs[count][budget], count))]
    for options, way in zip(reversed(tables[1:]), reversed(ways[1:]), strict=True):
        before_it = int(way[counts[-1]][left])
        left -= options[counts[-1]]
        counts.append(before_it)
    return tuple(reversed(counts))


def raised(counts: Counts, missed: Sequence[int], excess: int, most: int, hopeless: set[tuple[int, int]]) -> Counts:
    """One replica more where most is missed, in as many pieces as the `excess` comes from; not where that did not help
    before (`hopeless`: piece and count)."""
    open_ = [k for k, count in enumerate(counts) if count < most and missed[k] and (k, count) not in hopeless]
    more, covered = set[int](), 0
    for piece in sorted(open_, key=lambda k: -missed[k]):
        if covered >= excess:
            break
        more.add(piece)
        covered += missed[piece]
    return tuple(count + (k in more) for k, count in enumerate(counts))
