"""The table of loads: complete, readable, and with the issue's loads first."""

from collections import Counter
from itertools import pairwise

import pytest

from sluice_sim.benchmark.corpus.arrivals import arrivals_of, data_of
from sluice_sim.benchmark.corpus.load import ISSUE, read_loads

LOADS = list(read_loads().values())
TRAIN = [load for load in LOADS if load.family != ISSUE]


def test_the_corpus_covers_hardware_cold_starts_targets_and_sizes() -> None:
    assert len(TRAIN) >= 40
    assert len({load.hardware for load in TRAIN}) >= 3
    assert {20.0, 60.0, 300.0} <= {load.cold_start for load in TRAIN}
    assert len({load.slo for load in TRAIN}) >= 3
    assert {1, 3, 10, 30} <= {load.size for load in TRAIN}
    assert min(Counter(load.family for load in TRAIN).values()) >= 2


def test_the_issues_loads_come_first_with_their_spec() -> None:
    issue = LOADS[:5]
    assert [load.name for load in issue] == ["code", "code-x2", "r1-x0.05", "r1-x0.1", "r1-x0.3"]
    for load in issue:
        spec, settings = load.spec(), load.settings()
        assert (load.family, load.seed, settings.interval, settings.begin) == (ISSUE, 0, 5.0, 1)
        assert (spec.scaling.min_replicas, spec.scaling.max_replicas, spec.model.max_model_length) == (1, 60, 131_072)
        assert (spec.slo.ttft_milliseconds, spec.slo.itl_milliseconds) == (2000, 100)
        assert str(spec.slo.attainment_percent) == "99"
    assert [load.cold_start for load in issue] == [60, 180, 60, 60, 60]
    assert [load.first_seconds for load in issue] == [1200.0] * 5


def test_a_short_load_has_a_first_part_of_a_fifth() -> None:
    assert read_loads()["conv-1"].first_seconds == 360.0


@pytest.mark.parametrize("name", ["conv-3", "kv-3", "vidur-bursts", "batch-1", "r1-1", "mooncake-3"])
def test_arrivals_are_repeatable_in_order_and_within_the_load(name: str) -> None:
    load = read_loads()[name]
    found = arrivals_of(load)
    arrivals_of.cache_clear()
    assert found == arrivals_of(load)
    assert all(before.at <= after.at for before, after in pairwise(found))
    assert found[-1].at < load.seconds
    assert sum(one.within(load.context) is None for one in found) <= 0.005 * len(found)


def test_a_load_reads_its_own_traces_only() -> None:
    read = {path.name for path in data_of(read_loads()["r1-1"]) if not path.name.startswith("profile_")}
    assert read == {"servegen_deepseek-r1_rates.csv.gz", "servegen_deepseek-r1_lengths.jsonl.gz"}


def test_kv_bound_loads_fill_a_small_pool() -> None:
    for load in (one for one in TRAIN if one.family == "kv-bound"):
        mean = sum(one.prompt + one.output for one in arrivals_of(load)) / len(arrivals_of(load))
        assert load.settings().kv_tokens < 40 * mean
