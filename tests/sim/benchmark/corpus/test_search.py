"""The searches for constant fleets and for schedules, on a fleet whose misses are known in closed form."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluice_sim.benchmark.corpus.constants import bracketing, cheapest_reaching, constant_fleets
from sluice_sim.benchmark.corpus.figures import Figures, Part, to_dict
from sluice_sim.benchmark.corpus.hindsight import Hindsight, hindsight, table_of
from sluice_sim.benchmark.corpus.laws import CONSTANT
from sluice_sim.benchmark.corpus.load import read_loads
from sluice_sim.benchmark.corpus.tasks import LawRun
from sluice_sim.benchmark.search.schedule import PIECE, cost
from tests.sim.benchmark.corpus.figures import figures

LOAD = replace(read_loads()["on-off-3"], seconds=3600.0)  # 12 pieces, size 3, 2 GPUs per replica
NEEDS = (1, 1, 4, 4, 1, 1, 2, 6, 2, 1, 1, 1)  # replicas per piece
PER_PIECE = 1000  # requests of a piece; a replica too few misses a fifth of them
Plan = Generator[Sequence[LawRun], Sequence[dict[str, Any]], Any]


def outcome(counts: Sequence[int], needs: Sequence[int] = NEEDS) -> Figures:
    """The run of these counts: each piece misses by its own lack of replicas."""
    missed = tuple(min(PER_PIECE, 200 * max(0, need - count)) for need, count in zip(needs, counts, strict=True))
    hours = cost(counts, LOAD.cold_start) * LOAD.gpus / 3600.0
    none = Part(0, 0, 0.0)
    run = figures(1.0, hours)
    after = Part(PER_PIECE * len(needs), sum(missed), hours)
    return Figures(
        first=none,
        after=after,
        worst=run.worst,
        replicas_mean=run.replicas_mean,
        replicas_max=max(counts),
        kv_share_max=0.5,
        actions=0.0,
        cpu_seconds=0.0,
        missed=missed,
    )


def answer(task: LawRun) -> Figures:
    if task.law == CONSTANT:
        return outcome([round(task.setting or 1.0)] * len(NEEDS))
    counts = list(task.counts)
    if task.from_fewest:  # the first order takes a cold start; here it loses the first piece's misses
        counts[0] = LOAD.least
    return outcome(counts)


def driven(plan: Plan, answers: Callable[[LawRun], Figures] = answer) -> tuple[Any, list[LawRun]]:
    asked: list[LawRun] = []
    sent: list[dict[str, Any]] | None = None
    while True:
        try:
            tasks = next(plan) if sent is None else plan.send(sent)
        except StopIteration as end:
            return end.value, asked
        asked += tasks
        sent = [to_dict(answers(task)) for task in tasks]


def test_the_constants_bracket_the_target_and_the_law() -> None:
    base, asked = driven(constant_fleets(LOAD))
    assert cheapest_reaching(base, 0.99) == 6
    own = figures(0.95, 5.0)
    found, more = driven(bracketing(LOAD, base, own))
    assert cheapest_reaching(found, 0.95) == 4  # 4 replicas miss 400 of 12,000
    assert {3, 4, 5, 6} <= set(found)
    assert len({*asked, *more}) == len(asked) + len(more) <= 8


def test_a_large_fleet_is_bracketed_within_the_gaps_of_the_grid() -> None:
    needs = (23,) * len(NEEDS)
    load = replace(LOAD, size=30)

    def answers(task: LawRun) -> Figures:
        return outcome([round(task.setting or 1.0)] * len(needs), needs)

    base, asked = driven(constant_fleets(load), answers)
    assert cheapest_reaching(base, 0.99) == 23
    assert len(asked) <= 10
    found, more = driven(bracketing(load, base, outcome([19] * len(needs), needs)), answers)
    assert cheapest_reaching(found, found[19].attainment) == 19
    assert len(more) <= 3


def test_the_constants_end_where_the_attainment_stops_rising() -> None:
    needs = (200, *NEEDS[1:])  # one piece that no count serves
    found, _ = driven(
        constant_fleets(LOAD),
        lambda task: outcome([round(task.setting or 1.0)] * len(NEEDS), needs),
    )
    assert max(found) <= 8
    assert max(one.attainment for one in found.values()) < 0.92


def test_a_table_is_linear_between_the_counts_that_were_run() -> None:
    found = {count: outcome([count] * len(NEEDS)) for count in (1, 3, 6)}
    table = table_of(found)
    assert [table[2][count] for count in (1, 2, 3, 4, 5, 6)] == [600, 400, 200, 134, 67, 0]


def test_the_clairvoyant_reaches_the_target_for_less_than_any_constant_count() -> None:
    known, asked = searched()
    best = known.clairvoyant
    assert best.figures.attainment >= 0.99
    assert best.figures.gpu_hours < 0.6 * outcome([6] * len(NEEDS)).gpu_hours
    assert best.counts == NEEDS
    assert len(asked) <= 16


def test_a_schedule_from_the_fewest_replicas_is_reported_with_the_misses_that_no_law_avoids() -> None:
    busy = (6, *NEEDS[1:])
    known, _ = searched(busy)
    assert known.clairvoyant.counts[0] >= 5
    assert known.clairvoyant.figures.attainment >= 0.99
    assert known.from_fewest.figures.whole.missed >= 1000  # the first piece, with one replica
    assert known.from_fewest.excess > 0


def searched(needs: Sequence[int] = NEEDS) -> tuple[Hindsight, list[LawRun]]:
    def answers(task: LawRun) -> Figures:
        counts = [round(task.setting or 1.0)] * len(needs) if task.law == CONSTANT else list(task.counts)
        if task.from_fewest:
            counts[0] = LOAD.least
        return outcome(counts, needs)

    fleets, _ = driven(constant_fleets(LOAD), answers)
    found, asked = driven(hindsight(LOAD, fleets), answers)
    assert isinstance(found, Hindsight)
    return found, asked


def test_a_target_out_of_reach_gives_a_schedule_near_the_fewest_misses() -> None:
    needs = (200, *NEEDS[1:])
    known, _ = searched(needs)
    fewest = outcome([6] * len(needs), needs).whole.missed
    assert known.clairvoyant.figures.whole.missed <= fewest + 0.001 * PER_PIECE * len(needs)


@pytest.mark.parametrize("pieces", [len(NEEDS)])
def test_a_schedule_has_a_count_for_each_piece_of_the_load(pieces: int) -> None:
    known, _ = searched()
    assert len(known.clairvoyant.counts) == pieces == LOAD.seconds / PIECE
