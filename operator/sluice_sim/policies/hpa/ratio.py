"""The algorithm of the Horizontal Pod Autoscaler: from a metric and its target to a number of replicas.

Source: Kubernetes documentation, "Horizontal Pod Autoscaling", algorithm details. Replicas = ceil(pods × current /
desired), with no change within a tolerance of 10 %. Pods without metrics count as 100 % of the target for a scale-down
and as 0 % for a scale-up; pods that are not ready count as 0 % for a scale-up. If that reverses the direction, the
count does not change.
"""

import math
from collections.abc import Sequence
from typing import Final

TOLERANCE: Final = 0.1


def per_pod(values: Sequence[float], target: float, missing: int, pending: int, current: int) -> int | None:
    """Replicas for a metric per pod (type Pods, averageValue).

    `values` holds the metric of the pods that have one, `missing` counts ready pods without it, `pending` pods that
    are not ready. None if there is no value or no positive target."""
    if not values or target <= 0:
        return None
    ratio = math.fsum(values) / len(values) / target
    counted, total = len(values), math.fsum(values)
    grows = ratio > 1.0
    if missing == 0 and not (grows and pending):
        return current if _close(ratio) else _ceil(ratio * counted)
    counted += missing + (pending if grows else 0)
    total += 0.0 if grows else missing * target
    adjusted = total / counted / target
    if _close(adjusted) or (adjusted > 1.0) != grows:
        return current
    wanted = _ceil(adjusted * counted)
    return current if (wanted < current if grows else wanted > current) else wanted


def in_total(value: float, target: float, existing: int, current: int) -> int:
    """Replicas for one external value that is divided among the `existing` pods (type External, averageValue)."""
    if existing > 0 and _close(value / (target * existing)):
        return current
    return _ceil(value / target)


def _close(ratio: float) -> bool:
    return abs(1.0 - ratio) <= TOLERANCE + 1e-12


def _ceil(value: float) -> int:
    return math.ceil(value - 1e-9)  # 0.3 / 0.1 is 3 replicas, not 4
