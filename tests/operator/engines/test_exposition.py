"""One scrape is a sample or it is nothing: a partly valid answer is rejected whole."""

import pytest

from sluice import contract
from sluice_operator.autoscaler.values import ShadowTotals
from sluice_operator.engines.exposition import BadExposition, parse
from sluice_perfmodel.shadow_queues import LOAD_NAMES
from tests.operator.fake_cluster import exposition


def test_counters_that_nothing_has_touched_are_zero() -> None:
    sample = parse(exposition())
    assert (sample.arrived_total, sample.slo_missed_total, sample.ttft.count) == (0, 0, 0)
    assert sample.step_model is None


def test_outcomes_and_misses_are_summed() -> None:
    text = exposition() + "".join(
        f'{contract.REQUESTS}{{outcome="{name}"}} {value}\n'
        for name, value in (("stop", 3), ("length", 4), ("abort", 9), ("error", 2))
    )
    text += f'{contract.SLO_REQUESTS}{{result="met"}} 5\n{contract.SLO_REQUESTS}{{result="missed_both"}} 2\n'
    sample = parse(text)
    assert (sample.finished_total, sample.slo_met_total, sample.slo_missed_total) == (7, 5, 2)
    assert sample.failed_total == 2


def test_shadow_queues_are_read_in_the_order_of_the_loads_and_only_complete() -> None:
    lines = [f'{contract.SHADOW_LATE}{{load="{name}"}} {index}\n' for index, name in enumerate(LOAD_NAMES)]
    text = exposition() + f"{contract.SHADOW_REQUESTS} 40\n{contract.SHADOW_UNREACHABLE} 3\n"
    expected = ShadowTotals(40.0, 3.0, tuple(float(index) for index in range(len(LOAD_NAMES))))
    assert parse(text + "".join(reversed(lines))).shadow == expected
    assert parse(text + "".join(lines[:-1])).shadow is None
    assert parse(text).shadow is None


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e19"])
@pytest.mark.parametrize("name", [contract.REQUESTS_RUNNING, contract.GENERATED_TOKENS, contract.STEP_MODEL_ERROR])
def test_a_value_outside_its_range_invalidates_the_sample(name: str, value: str) -> None:
    with pytest.raises(BadExposition, match=name):
        parse(exposition() + f"{name} {value}\n")


@pytest.mark.parametrize(
    "gone",
    [contract.REQUESTS_RUNNING, contract.KV_OCCUPANCY_RATIO, contract.CACHE_CONFIG_INFO, contract.ADMISSION_LIMIT],
)
def test_what_every_engine_publishes_must_be_there(gone: str) -> None:
    text = "".join(line + "\n" for line in exposition().splitlines() if not line.startswith(gone))
    with pytest.raises(BadExposition, match=gone):
        parse(text)


def test_an_occupancy_above_one_is_rejected() -> None:
    with pytest.raises(BadExposition, match="more than 1"):
        parse(exposition(kv_occupancy_ratio=1.5))


@pytest.mark.parametrize(
    "buckets",
    [
        'sluice_time_to_first_token_seconds_bucket{le="0.1"} 3\n',
        'sluice_time_to_first_token_seconds_bucket{le="0.1"} 3\nsluice_time_to_first_token_seconds_bucket{le="+Inf"} 2\n',
        'sluice_time_to_first_token_seconds_bucket{le="soon"} 3\n',
    ],
    ids=["no +Inf", "shrinking", "no number"],
)
def test_a_histogram_must_be_one(buckets: str) -> None:
    with pytest.raises(BadExposition, match="time_to_first_token"):
        parse(exposition() + buckets)


@pytest.mark.parametrize("text", ["", "<html>not found</html>", "sluice_requests_running{\n", "\x00\x01"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadExposition):
        parse(text)


def test_metrics_of_others_are_ignored_however_broken() -> None:
    assert parse(exposition() + "python_gc_objects_total NaN\nbroken{ 1\n").running == 0
