"""A real engine's `/metrics` against the contract: every name, label and bucket, from the first scrape."""

from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sluice import contract
from sluice_perfmodel.shadow_queues import LOAD_NAMES
from tests.engine.serving import CHAT, Served, body

GAUGES: Final[dict[str, tuple[str, tuple[str, ...]] | None]] = {
    contract.REQUESTS_RUNNING: None,
    contract.REQUESTS_WAITING: None,
    contract.TOKENS_IN_FLIGHT: None,
    contract.KV_OCCUPANCY_RATIO: None,
    contract.KV_BLOCKS: ("state", contract.KV_STATES),
    contract.ADMISSION_LIMIT: ("kind", contract.LIMIT_KINDS),
    contract.STEP_MODEL_SECONDS: ("term", contract.STEP_MODEL_TERMS),
    contract.STEP_MODEL_ERROR: None,
    contract.STEP_MODEL_STEPS: None,
    contract.LOAD_PHASE_SECONDS: ("phase", contract.LOAD_PHASES),
    contract.PACED: None,
    contract.API_KEYS: None,
    contract.MOUNTED_FILE_FAULT: ("file", contract.MOUNTED_FILES),
}
COUNTERS: Final[dict[str, tuple[str, tuple[str, ...]] | None]] = {
    contract.REQUESTS_ARRIVED: None,
    contract.REQUESTS_OFFERED_AGAIN: None,
    contract.REQUESTS: ("outcome", contract.OUTCOMES),
    contract.SLO_REQUESTS: ("result", contract.SLO_RESULTS),
    contract.REJECTIONS: ("reason", contract.REJECTION_REASONS),
    contract.SHADOW_REQUESTS: None,
    contract.SHADOW_UNREACHABLE: None,
    contract.SHADOW_LATE: ("load", LOAD_NAMES),
    contract.KV_BLOCK_SECONDS: None,
    contract.BUSY_SECONDS: None,
    contract.PROMPT_TOKENS_TOTAL: None,
    contract.CACHED_PROMPT_TOKENS: None,
    contract.GENERATED_TOKENS: None,
    contract.PREEMPTIONS: None,
    contract.SWAPS: None,
    contract.DRAFT_TOKENS: None,
    contract.ACCEPTED_DRAFT_TOKENS: None,
    contract.METRICS_FAULTS: None,
    contract.ACCESS_REFUSALS: ("reason", contract.ACCESS_REFUSAL_REASONS),
    contract.MOUNTED_FILE_RELOADS: ("file", contract.MOUNTED_FILES),
    contract.MOUNTED_FILE_FAILURES: ("file", contract.MOUNTED_FILES),
}
HISTOGRAMS: Final = {
    contract.TIME_TO_FIRST_TOKEN: contract.LATENCY_BUCKETS,
    contract.INTER_TOKEN_LATENCY: contract.LATENCY_BUCKETS,
    contract.TIME_PER_OUTPUT_TOKEN: contract.LATENCY_BUCKETS,
    contract.REQUEST_DURATION: contract.LATENCY_BUCKETS,
    contract.QUEUE_SECONDS: contract.LATENCY_BUCKETS,
    contract.STEP_SECONDS: contract.LATENCY_BUCKETS,
    contract.PROMPT_TOKENS: contract.TOKEN_BUCKETS,
    contract.OUTPUT_TOKENS: contract.TOKEN_BUCKETS,
}

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def series(served: Served) -> Series:
    assert served.request("POST", CHAT, body(5, stream=False)).status == 200
    answer = served.admin("GET", contract.PATH_METRICS)
    assert answer.headers["content-type"].startswith("text/plain")
    found: Series = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


@pytest.mark.parametrize(("name", "label"), [*GAUGES.items(), *COUNTERS.items()])
def test_every_series_of_the_contract_is_there(
    series: Series, name: str, label: tuple[str, tuple[str, ...]] | None
) -> None:
    wanted = {((label[0], value),) for value in label[1]} if label is not None else {()}
    assert {labels for found, labels in series if found == name} == wanted


@pytest.mark.parametrize(("name", "buckets"), HISTOGRAMS.items())
def test_histograms_have_the_contracts_buckets(series: Series, name: str, buckets: tuple[float, ...]) -> None:
    edges = {dict(labels)["le"] for found, labels in series if found == f"{name}_bucket"}
    assert {float(edge) for edge in edges} == {*buckets, float("inf")}
    assert series[f"{name}_count", ()] >= 1


def test_nothing_is_published_that_the_contract_does_not_name(series: Series) -> None:
    infos = {contract.MODEL_INFO, contract.CACHE_CONFIG_INFO}
    histograms = {f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "count", "sum")}
    assert {name for name, _ in series} == {*GAUGES, *COUNTERS, *histograms, *infos}


def test_info_labels_are_the_contracts(series: Series) -> None:
    labels = {name: {key for key, _ in pairs} for name, pairs in series}
    assert labels[contract.MODEL_INFO] == {"version", "dtype", "model", "revision"}
    assert labels[contract.CACHE_CONFIG_INFO] == {"block_size", "num_blocks"}


def test_the_fitted_step_model_is_published(series: Series) -> None:
    assert series[contract.STEP_MODEL_STEPS, ()] > 0
    assert all(series[contract.STEP_MODEL_SECONDS, (("term", term),)] >= 0 for term in contract.STEP_MODEL_TERMS)


def test_limits_have_exactly_the_contracts_fields(served: Served) -> None:
    assert set(contract.LIMIT_FIELDS) < set(served.admin("GET", contract.PATH_LIMITS).json())
