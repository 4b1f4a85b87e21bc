"""Metrics per LLMDeployment: what they show, and that their number stays bounded."""

from typing import Any

import pytest

from e2e.framework.cluster import parse_metrics
from sluice_operator.cluster.client import ClusterError, Key
from sluice_operator.metrics import OperatorMetrics
from sluice_operator.runtime.workqueue import Workers

Object = dict[str, Any]


def document(name: str, number: int = 0, **status: Any) -> Object:
    created = f"2026-11-21T08:00:{number:02}Z"
    return {"metadata": {"namespace": "ns", "name": name, "creationTimestamp": created}, "status": status}


def serving(name: str, number: int = 0) -> Object:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Available", "status": "False"}, {"type": "Odd"}]
    return document(name, number, desiredReplicas=3, readyReplicas=2, conditions=conditions)


def series(metrics: OperatorMetrics) -> dict[str, float]:
    """The series per resource, without the prefix."""
    found = parse_metrics(metrics.text().decode())
    prefix = "sluice_operator_resource_"
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def test_a_resource_has_its_replicas_conditions_and_failures() -> None:
    metrics = OperatorMetrics()
    metrics.resources.observed(serving("chat"))
    metrics.resources.failed("ns", "chat")
    assert series(metrics) == {
        'replicas{name="chat",namespace="ns",state="desired"}': 3.0,
        'replicas{name="chat",namespace="ns",state="ready"}': 2.0,
        'condition{name="chat",namespace="ns",type="Available"}': 0.0,
        'condition{name="chat",namespace="ns",type="Ready"}': 1.0,
        'failures_total{name="chat",namespace="ns"}': 1.0,
    }


def test_a_resource_without_a_status_has_the_same_series() -> None:
    metrics = OperatorMetrics()
    metrics.resources.observed({"metadata": {"namespace": "ns", "name": "chat"}})
    assert set(series(metrics).values()) == {0.0}
    assert len(series(metrics)) == 5


def test_a_deleted_resource_has_no_series_and_starts_anew() -> None:
    metrics = OperatorMetrics()
    metrics.resources.failed("ns", "chat")
    for name in ("chat", "other"):
        metrics.resources.observed(serving(name))
    metrics.resources.forgotten("ns", "chat")
    assert not any('name="chat"' in name for name in series(metrics))
    metrics.resources.observed(serving("chat"))
    assert series(metrics)['failures_total{name="chat",namespace="ns"}'] == 0.0


def test_above_the_bound_the_youngest_share_one_sum() -> None:
    metrics = OperatorMetrics(most_resources=2)
    for name in ("c", "d", "d"):
        metrics.resources.failed("ns", name)
    for number, name in enumerate("abcd"):
        metrics.resources.observed(serving(name, number))
    found = series(metrics)
    assert found['replicas{name="_other",namespace="_other",state="desired"}'] == 6.0
    assert found['condition{name="_other",namespace="_other",type="Ready"}'] == 2.0
    assert found['failures_total{name="_other",namespace="_other"}'] == 3.0
    assert found['replicas{name="b",namespace="ns",state="desired"}'] == 3.0
    assert len(found) == 3 * 5


@pytest.mark.parametrize("count", [0, 1, 50])
def test_the_number_of_series_is_bounded_whatever_the_number_of_resources(count: int) -> None:
    metrics = OperatorMetrics(most_resources=1)
    for number in range(count):
        metrics.resources.observed(serving(f"m-{number}", number))
    assert len(series(metrics)) == 5 * min(count, 2)


async def test_a_failed_pass_counts_for_its_resource() -> None:
    metrics = OperatorMetrics()

    async def reconcile(_: Key) -> float:
        raise ClusterError("503")

    class Enough(Exception):
        """Ends the worker at its first pause."""

    async def pause(_: float) -> None:
        raise Enough

    metrics.resources.observed(document("chat"))
    workers = Workers(reconcile, metrics=metrics, sleep=pause)
    workers.wake(Key("ns", "chat"))
    (task,) = workers._tasks.values()
    with pytest.raises(Enough):
        await task
    assert series(metrics)['failures_total{name="chat",namespace="ns"}'] == 1.0
