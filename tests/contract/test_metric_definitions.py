"""Each process exports what `sluice.metrics` defines for it: every name, type and label, and nothing else."""

from collections.abc import Iterable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sluice import contract
from sluice.metrics import ALL, ENGINE, GATEWAY, OPERATOR, Metric, by_name
from sluice_engine.config import EngineOptions
from sluice_engine.server.auth.metrics import AccessMetrics
from sluice_engine.server.metrics import EngineMetrics
from sluice_gateway.metrics import GatewayMetrics
from sluice_operator.metrics import OperatorMetrics

OPTIONS = EngineOptions(model="tiny", served_name="tiny")


def exports() -> dict[str, tuple[bytes, tuple[Metric, ...]]]:
    """What each process exports before it has measured anything, and its definitions."""
    engine = EngineMetrics(OPTIONS).render() + AccessMetrics().render()
    return {
        "engine": (engine, ENGINE),
        "gateway": (GatewayMetrics().render(), GATEWAY),
        "operator": (OperatorMetrics().text(), OPERATOR),
    }


def declared(metrics: Iterable[Metric]) -> set[tuple[str, str]]:
    """Names and types as the text format declares them: a counter's name may lack its `_total` there."""
    return {(metric.name.removesuffix("_total"), metric.kind) for metric in metrics}


@pytest.mark.parametrize("process", exports())
def test_a_process_exports_its_definitions_and_nothing_else(process: str) -> None:
    text, metrics = exports()[process]
    families = list(text_string_to_metric_families(text.decode()))
    kinds = {(family.name.removesuffix("_total"), family.type) for family in families if "_created" not in family.name}
    assert kinds == declared(metrics)
    documented = {family.documentation for family in families if "_created" not in family.name}
    assert documented == {metric.text for metric in metrics}


@pytest.mark.parametrize("process", exports())
def test_series_of_known_label_values_exist_from_the_first_scrape(process: str) -> None:
    text, metrics = exports()[process]
    found = {
        (sample.name, frozenset(sample.labels.items()))
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }
    for metric in metrics:
        if metric.kind != "histogram" and len(metric.labels) == 1 and metric.labels[0].values:
            label = metric.labels[0]
            assert {(metric.name, frozenset({(label.name, value)})) for value in label.values} <= found


def test_every_name_of_the_contract_has_one_definition() -> None:
    names = {
        value
        for name, value in vars(contract).items()
        if isinstance(value, str) and name.isupper() and value.startswith(contract.PREFIX) and value != contract.PREFIX
    }
    assert {metric.name for metric in ALL} == names
    assert len(ALL) == len(names)


def test_a_name_without_a_definition_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        by_name("sluice_unknown")
    assert by_name(contract.REQUESTS).label("outcome") is not None
    assert by_name(contract.REQUESTS).label("model") is None
