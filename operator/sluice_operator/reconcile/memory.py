"""Inputs of every reconcile pass, and the memory that one pass passes on to the next. Values only.

Correctness does not depend on this memory: a new process reads everything back from the cluster. The memory saves
queries, keeps windows of samples, and prevents duplicate Events.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision, Reason
from sluice_operator.cluster.client import ClusterClient, Key
from sluice_operator.engines.client import Scraper
from sluice_operator.metrics import OperatorMetrics
from sluice_operator.reconcile.observe import ObservationState
from sluice_operator.settings import Settings


@dataclass(frozen=True, slots=True)
class Remembered:
    """One resource's memory between passes. Times are monotonic seconds."""

    uid: str = ""  # a resource recreated under the same name starts with an empty memory
    decide: AutoscalerState = field(default_factory=AutoscalerState)
    seen: ObservationState = field(default_factory=ObservationState)
    token: str | None = None  # the engines' admin token, set after its Secret was created
    set_replicas: int | None = None  # replica count that this operator last wrote
    # (time, decision): carried out, and not yet written into the status
    unrecorded: tuple[tuple[str, Reason], ...] = ()
    children: int | None = None  # fingerprint of the children last applied
    children_at: float = 0.0
    numbers_at: float | None = None  # time of the last status write that updated the numbers
    other_writer: tuple[float, str] | None = None  # (time when noticed, sentence about it)
    healing: tuple[int, float] = (0, 0.0)  # (crashed pods replaced so far, time of the last one)
    told: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (reason, message) of an Event → time sent


@dataclass(slots=True)
class ServedNames:
    """The served names of one namespace, as last listed."""

    at: float  # monotonic seconds
    # served name → {(creationTimestamp, metadata.name)}
    holders: dict[Any, set[tuple[str, str]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    """Dependencies and state of the operator as one value. Only `memories`, `decisions` and `names` change."""

    cluster: ClusterClient
    scraper: Scraper
    settings: Settings = field(default_factory=Settings)
    # The operator's key. Admin tokens are derived from it; an empty key makes that fail.
    key: bytes = field(default=b"", repr=False)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)
    memories: dict[Key, Remembered] = field(default_factory=dict)
    decisions: dict[Key, Decision] = field(default_factory=dict)  # the newest per resource, for display
    names: dict[str, ServedNames] = field(default_factory=dict)  # by namespace

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted resource; with the last one of a namespace, also the served names."""
        self.memories.pop(key, None)
        self.decisions.pop(key, None)
        if not any(other.namespace == key.namespace for other in self.memories):
            self.names.pop(key.namespace, None)
