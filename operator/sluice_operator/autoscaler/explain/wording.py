"""The wording that all explanations share: numbers, units and the names of binding constraints."""

from collections.abc import Mapping
from typing import Final

from sluice_operator.autoscaler.replicas.recommendation import Recommendation

BINDING_WORDS: Final[Mapping[str, str]] = {
    "InterTokenLatency": "ITL binds",
    "KVOccupancy": "KV cache binds",
    "TimeToFirstToken": "TTFT binds",
    "ConcurrencyLimit": "the concurrency limit binds",
    "Queue": "the queue binds",
    "Idle": "idle",
}


def percent(share: float) -> str:
    """A share with one decimal: "98.7 %"."""
    return f"{100.0 * share:.1f} %"


def rate(value: float) -> str:
    """Requests per second with two significant digits."""
    return f"{value:.0f}" if value >= 20 else f"{value:.2g}"


def replicas(count: int) -> str:
    """The count with its noun: "1 replica", "2 replicas"."""
    return f"{count} replica" if count == 1 else f"{count} replicas"


def numbers(recommendation: Recommendation) -> tuple[tuple[str, float], ...]:
    """The inputs of a decision, for `Reason.numbers`."""
    demand, prediction = recommendation.demand, recommendation.prediction
    found = [
        ("expectedRate", demand.expected),
        ("highestRate", demand.highest),
        ("waiting", demand.backlog),
        ("horizonSeconds", demand.horizon),
        ("dispersion", demand.arrivals.dispersion),
    ]
    if prediction is not None:
        one = prediction.capacity
        found += [
            ("replicaRate", one.rate),
            ("replicaConcurrency", float(one.concurrency)),
            ("replicaItlSeconds", one.itl),
            ("replicaTtftSeconds", one.ttft),
            ("replicaKvOccupancy", one.kv_occupancy),
            ("predictedAttainment", prediction.attainment_now),
            ("predictedAttainmentAfter", prediction.attainment),
        ]
    if recommendation.reactive is not None:
        found.append(("ratio", recommendation.reactive.ratio))
    return tuple((name, round(value, 4)) for name, value in found)
