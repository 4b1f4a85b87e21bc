"""The bars of the corpus, on results made by hand."""

from dataclasses import replace

import pytest

from sluice_sim.benchmark.corpus.hindsight import Hindsight, Schedule
from sluice_sim.benchmark.corpus.plan import LoadResult
from sluice_sim.benchmark.corpus.report import bars
from sluice_sim.benchmark.corpus.report.bars import Verdict, own_bars, verdicts
from sluice_sim.benchmark.corpus.report.score import score_of
from tests.sim.benchmark.corpus.figures import figures, load, result

GOOD = figures(0.99, 4.0)


def met(verdict: Verdict | None) -> bool:
    assert verdict is not None
    return verdict.met


def test_a_load_of_the_issue_is_judged_whole_after_the_first_part_and_by_both_costs() -> None:
    own = figures(0.98, 5.0, after=0.996)
    found = own_bars(result(own, "code"))
    assert [one.met for one in found] == [True, True, True, True]
    assert "0.62" in found[2].sentence and "hpa-running" in found[2].sentence
    assert "2 constant replicas" in found[3].sentence
    assert [one.met for one in own_bars(result(figures(0.974, 5.0, after=0.994), "code"))][:2] == [False, False]
    assert not own_bars(result(own, "conv-1"))


def test_a_cost_above_the_cheapest_peer_that_reaches_as_much_misses() -> None:
    dear = result(figures(0.99, 8.9, after=1.0), "code")
    assert [one.met for one in own_bars(dear)] == [True, True, False, False]


@pytest.mark.parametrize(("kept", "holds"), [(9, True), (8, False)])
def test_nine_of_ten_reachable_loads_are_kept(kept: int, holds: bool) -> None:
    poor = result(figures(0.984, 4.0))
    missing = Schedule((1,), figures(0.98, 4.0), allowed=100)
    out_of_reach = result(figures(0.5, 4.0), hindsight=Hindsight(missing, missing))
    assert met(bars.kept_loads([result(GOOD)] * kept + [poor] * (10 - kept) + [out_of_reach] * 5)) == holds


def test_the_medians_compare_with_the_clairvoyant_and_the_best_constant_count() -> None:
    cheap, dear = result(figures(0.99, 4.8)), result(figures(0.99, 9.0))
    assert met(bars.median_over_clairvoyant([cheap, cheap, dear]))
    assert not met(bars.median_over_clairvoyant([cheap, dear, dear]))
    assert met(bars.median_over_constant([result(GOOD), result(GOOD), dear]))
    assert not met(bars.median_over_constant([cheap, cheap, cheap]))


def test_a_peer_that_is_better_and_cheaper_after_the_first_part_beats_the_law() -> None:
    def against(peer: float, cost: float) -> bool:
        return met(bars.no_better_peer([result(GOOD, peers={"kpa": figures(peer, cost)})]))

    assert not against(0.9935, 3.9)
    assert against(0.9925, 3.9)  # not by more than 0.3 points
    assert against(0.9935, 3.97)  # not by more than 1 %


def test_a_peer_that_is_better_in_the_first_part_alone_does_not_beat_the_law() -> None:
    own = figures(0.97, 4.0, after=0.999)
    assert met(bars.no_better_peer([result(own, peers={"kpa": figures(0.999, 3.0, after=0.999)})]))


@pytest.mark.parametrize(("beaten", "holds"), [(1, True), (2, False)])
def test_a_constant_count_may_win_on_one_load_in_ten(beaten: int, holds: bool) -> None:
    loses = result(figures(0.975, 4.5))
    assert met(bars.few_better_constants([loses] * beaten + [result(GOOD)] * (10 - beaten))) == holds


def test_a_constant_count_that_is_ahead_in_the_first_part_alone_is_counted_apart() -> None:
    verdict = bars.few_better_constants([result(figures(0.97, 4.5, after=1.0))])
    assert not met(verdict)
    assert verdict is not None and "after the first part 0" in verdict.sentence


def test_our_engine_may_lose_two_tenths_of_a_point_to_a_stock_one() -> None:
    assert met(bars.engine_never_worse([result(GOOD, stock=(2, figures(0.9915, 4.0)))]))
    assert not met(bars.engine_never_worse([result(GOOD, stock=(2, figures(0.9925, 4.0)))]))


def test_nothing_measured_gives_no_verdict() -> None:
    bare = LoadResult(load=load(), own=GOOD, peers={}, constants={})
    assert not verdicts([bare])


def test_a_family_left_out_changes_the_figures_of_the_others() -> None:
    results = [result(GOOD), replace(result(figures(0.99, 9.0)), load=load("kv-1"))]
    assert bars.families(results) == ["azure-conv", "kv-bound"]
    assert met(bars.median_over_clairvoyant(bars.without_family(results, "kv-bound")))
    assert not met(bars.median_over_clairvoyant(bars.of_family(results, "kv-bound")))


def test_the_regret_counts_misses_beyond_the_schedule_that_begins_as_a_law_does() -> None:
    assert score_of(result(GOOD)).regret is None
    assert score_of(result(figures(0.97, 4.0))).regret == pytest.approx(0.02)


def test_a_law_better_than_every_constant_count_is_compared_with_the_best_of_them() -> None:
    assert score_of(result(figures(0.9999, 5.0))).constant == 3
    assert score_of(result(figures(0.9, 5.0))).constant == 2
