"""Tables of missed requests per piece and count of replicas, and the cheapest schedule that they allow.

A schedule is a count per piece of five minutes; each replica is launched one cold start early. Three-hour windows are
tabulated separately: each is run with ample replicas, and then with one fewer wherever few requests were missed.
`cheapest` solves the tables exactly (a knapsack over time). The tables treat pieces as independent except for the
starts between them, so runs of the whole schedule correct them (`clairvoyant`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from sluice_sim.benchmark.search.miss_counter import MissCounter
from sluice_sim.benchmark.search.schedule import PIECE, Counts

Table = tuple[dict[int, int], ...]  # per piece: replicas → requests missed
WINDOW_PIECES: Final = 36  # pieces of a window: three hours
INITIAL_MARGIN: Final = 1.25  # times the work bound: the initial count of a search
TOLERATED_MISS_SHARE: Final = 0.002  # share of a piece's requests that may be missed without adding a replica
# A further replica must reduce the misses at least to this share, or more replicas do not help.
MAX_REMAINING_SHARE: Final = 0.9
MAX_MISS_SHARE: Final = 0.1  # share of missed requests in a piece beyond which fewer replicas are not tried


def table(counter: MissCounter, first: int, end: int, note: Callable[[str], None] = lambda _: None) -> Table:
    """Requests missed per piece of [first, end) and count of replicas: the least over all runs.

    A run with too few replicas in the previous piece carries its backlog over, which overstates the misses; the least
    can understate them, and runs of the whole schedule correct that.
    """
    least, most = counter.track.least, counter.track.most
    counts = [least] * counter.pieces
    for piece in range(first, end):
        counts[piece] = min(most, max(least, math.ceil(INITIAL_MARGIN * counter.work(piece) / PIECE) + 1))
    found: Table = tuple({} for _ in range(first, end))

    def run() -> None:
        for options, count, missed in zip(
            found, counts[first:end], counter.misses(tuple(counts), first, end), strict=True
        ):
            options[count] = min(missed, options.get(count, missed))
        note(f"pieces {first}–{end}: {sum(o[c] for o, c in zip(found, counts[first:end], strict=True))} missed")

    def short(piece: int) -> bool:
        """True if one more replica may help: the piece misses requests, and its last replica reduced the misses."""
        options, count = found[piece - first], counts[piece]
        if count >= most or options[count] <= TOLERATED_MISS_SHARE * counter.offered(piece):
            return False
        return count - 1 not in options or options[count] <= MAX_REMAINING_SHARE * options[count - 1]

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
        if counts[piece] > least and found[piece - first][counts[piece]] <= MAX_MISS_SHARE * counter.offered(piece)
    ]:
        for piece in low:
            counts[piece] -= 1
        run()
    return found


def cheapest(tables: Table, budget: int, lead: float, last: float = PIECE) -> Counts:
    """The schedule of the fewest replica-seconds (`schedule.cost`) with at most `budget` misses by the tables.

    If there is none, each piece gets the count with its fewest misses. `last`: seconds of the last piece.
    """
    costs: dict[int, np.ndarray] = {}  # replicas of the piece → least cost so far, indexed by the misses allowed
    ways: list[dict[int, np.ndarray]] = []  # replicas of the piece → replicas of the previous piece
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


def raised(counts: Counts, missed: Sequence[int], excess: int, most: int, ineffective: set[tuple[int, int]]) -> Counts:
    """Add one replica to the pieces with the most misses, in as many pieces as cover the `excess`.

    Pairs (piece, count) in `ineffective`, where a replica did not help before, are excluded.
    """
    open_ = [k for k, count in enumerate(counts) if count < most and missed[k] and (k, count) not in ineffective]
    more, covered = set[int](), 0
    for piece in sorted(open_, key=lambda k: -missed[k]):
        if covered >= excess:
            break
        more.add(piece)
        covered += missed[piece]
    return tuple(count + (k in more) for k, count in enumerate(counts))
