"""The wording that all explanations share: numbers, units and the names of binding constraints."""

from collections.abc import Mapping
from typing import Final

from sluice_operator.autoscaler.replicas.need import Need
from sluice_operator.autoscaler.signals.snapshot import Snapshot

BINDING_WORDS: Final[Mapping[str, str]] = {
    "LastingLoad": "needed for the load of the last minute at its growth",
    "KVOccupancy": "KV cache binds",
    "Throughput": "more comes than they serve",
    "MissedSLO": "the SLO is missed",
    "Idle": "idle",
}


def percent(share: float) -> str:
    """A share with one decimal: "98.7 %"."""
    return f"{100.0 * share:.1f} %"


def rate(value: float) -> str:
    """Requests per second with two significant digits."""
    return f"{value:.0f}" if value >= 20 else f"{value:.2g}"


def minutes(seconds: float) -> str:
    """A time after "the last": "15 minutes", "minute"."""
    return "minute" if seconds == 60.0 else f"{seconds / 60.0:.3g} minutes"


def replicas(count: int) -> str:
    """The count with its noun: "1 replica", "2 replicas"."""
    return f"{count} replica" if count == 1 else f"{count} replicas"


def numbers(snapshot: Snapshot, need: Need) -> tuple[tuple[str, float], ...]:
    """The inputs of a decision, for `Reason.numbers`."""
    replay = need.replay
    found = (
        ("requestsPerSecond", snapshot.window.rate("arrived_total")),
        ("waiting", snapshot.fleet.waiting),
        ("growth", replay.growth),
        ("leadSeconds", replay.lead),
        ("modelError", replay.error),
        ("rememberedReplicas", float(replay.remembered)),
        ("lastingReplicas", float(replay.lasting)),
        ("byThroughputReplicas", float(replay.by_throughput)),
        ("replicaRate", replay.throughput),
        ("inMemoryReplicas", float(replay.in_memory)),
    )
    return tuple((name, round(value, 4)) for name, value in found)
