"""The first pass over all resources ends when each has had one, and not after as many passes over some of them."""

from sluice_operator.metrics import OperatorMetrics
from tests.bench.operator_scale.processes import passes_in, resources_in


def test_passes_over_one_resource_are_one_resource() -> None:
    metrics = OperatorMetrics(100)
    for name in ("a", "a", "b"):
        metrics.resources.observed({"metadata": {"name": name, "namespace": "ns"}})
        metrics.reconciled("ok", 0.1)
    text = metrics.text().decode()
    assert (resources_in(text), passes_in(text)) == (2, 3)
    assert (resources_in(""), passes_in("")) == (0, 0)
