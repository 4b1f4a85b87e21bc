"""What every pass is handed, and what one pass leaves for the next. Values only.

Nothing remembered here is needed to be right: a fresh process reads everything back from the world. Memory only
saves queries, keeps windows of samples, and keeps people from being told the same thing twice.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sluice_operator.decide.values import Decision, Memory, Reason
from sluice_operator.metrics import OperatorMetrics
from sluice_operator.observe import Seen
from sluice_operator.scrape import Scraper
from sluice_operator.settings import Settings
from sluice_operator.world import Key, World


@dataclass(frozen=True, slots=True)
class Remembered:
    """One resource's memory between passes. Times are monotonic seconds."""

    uid: str = ""  # whose memory this is: a resource that was made anew under the same name starts without one
    decide: Memory = field(default_factory=Memory)
    seen: Seen = field(default_factory=Seen)
    token: str | None = None  # the engines' admin token, as read back
    set_replicas: int | None = None  # what we last wrote into the Deployment
    unrecorded: tuple[
        tuple[str, Reason], ...
    ] = ()  # (when, decision) carried out whose status write has yet to succeed
    children: int | None = None  # fingerprint of the children last applied
    children_at: float = 0.0
    numbers_at: float | None = None  # when numbers last went into the status
    other_writer: tuple[float, str] | None = None  # when noticed, the sentence about it
    healing: tuple[int, float] = (0, 0.0)  # crashed pods replaced so far, when the last one
    told: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (reason, message) of Events → when


@dataclass(slots=True)
class ServedNames:
    """Who serves which name in one namespace, as last listed."""

    at: float  # monotonic seconds
    holders: dict[Any, set[tuple[str, str]]] = field(default_factory=dict)  # name → (created, metadata.name) of each


@dataclass(frozen=True, slots=True)
class Context:
    """The operator as one value. `memories`, `decisions` and `names` are what changes in it."""

    world: World
    scraper: Scraper
    settings: Settings = field(default_factory=Settings)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)
    memories: dict[Key, Remembered] = field(default_factory=dict)
    decisions: dict[Key, Decision] = field(default_factory=dict)  # the newest of each, for whoever shows them
    names: dict[str, ServedNames] = field(default_factory=dict)  # by namespace

    def forget(self, key: Key) -> None:
        """The resource is gone, and with the last one of its namespace the names that were served there."""
        self.memories.pop(key, None)
        self.decisions.pop(key, None)
        if not any(other.namespace == key.namespace for other in self.memories):
            self.names.pop(key.namespace, None)
