"""The definitions of all metrics, in one place: what processes export, and what dashboards and alerts may ask for."""

from sluice.metrics.definition import Label, Metric
from sluice.metrics.engine_metrics import ENGINE
from sluice.metrics.gateway_metrics import GATEWAY
from sluice.metrics.operator_metrics import OPERATOR
from sluice.metrics.vllm_metrics import VLLM

__all__ = ["ALL", "ENGINE", "GATEWAY", "OPERATOR", "VLLM", "Label", "Metric", "by_name"]

ALL = (*ENGINE, *GATEWAY, *OPERATOR)
_BY_NAME = {metric.name: metric for metric in (*ALL, *VLLM)}


def by_name(name: str) -> Metric:
    """Return the definition of the metric with this name. Raises KeyError if there is none."""
    return _BY_NAME[name]
