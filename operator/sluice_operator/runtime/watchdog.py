"""Ends the process when its watches have failed: Kopf only logs a dead watcher and continues without it.

There are two failures. The task of a watcher has ended; it is found in the event loop by its name. Or a watcher is
stale: the sweep has listed a change that no watch has delivered for longer than a live watch could take (Kopf
reconnects an idle watch after 70 s). An absence of events alone is no failure, since the cluster may be idle.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from sluice_operator.cluster.client import Key
from sluice_operator.metrics import OperatorMetrics

log = logging.getLogger(__name__)

WATCHER_PREFIX: Final = "watcher for "  # prefix of the task names that Kopf gives to watches
UNDELIVERED_SECONDS: Final = 75.0  # until an undelivered change counts as a failure
_CANCELLED_SECONDS: Final = 15.0  # a cancelled watcher is a fault if the process still runs after these
_START_SECONDS: Final = 60.0  # within which Kopf must start its watches


class Watchdog:
    """Compares the changes that watches delivered with those that lists show. Times are monotonic seconds."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        tasks: Callable[[], Iterable["asyncio.Task[Any]"]] = asyncio.all_tasks,
        metrics: OperatorMetrics | None = None,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._tasks = tasks
        self._metrics = metrics or OperatorMetrics()
        self._watchers: set[asyncio.Task[Any]] = set()
        self._cancelled_at: float | None = None
        self._delivered: dict[Key, tuple[str, float]] = {}  # (resourceVersion, time)
        self._undelivered: dict[Key, float] = {}
        self._last_event = clock()
        self._started = clock()
        self._watching = False

    def start(self) -> None:
        """Expect watchers from now on: this process holds the Lease."""
        self._watching = True
        self._started = self._last_event = self._clock()

    def delivered(self, key: Key, version: str) -> None:
        """Record that a watch delivered this resource at this resourceVersion."""
        self._last_event = self._clock()
        self._delivered[key] = (version, self._last_event)
        self._undelivered.pop(key, None)

    def list_started(self) -> float:
        """Return the time before a list request; the caller passes it to `list_finished`."""
        return self._clock()

    def list_finished(self, versions: dict[Key, str], asked: float) -> None:
        """Record the list that was requested at `asked`. Versions that no watch has delivered age from now on.

        Resources that a watch delivered since `asked` are skipped, because they may be newer than the list. A resource
        created in between is not in the list; it must not be dropped, since no watch would deliver it again.
        """
        now = self._clock()
        since = {key for key, (_, delivered) in self._delivered.items() if delivered >= asked}
        for gone in self._delivered.keys() - versions.keys() - since:
            del self._delivered[gone]
        self._undelivered = {
            key: self._undelivered.get(key, now)
            for key, version in versions.items()
            if key not in since and self._delivered.get(key, ("", 0.0))[0] != version
        }

    def fault(self) -> str:
        """Return why the process must end; empty without a fault."""
        if not self._watching:
            return ""
        now = self._clock()
        self._metrics.watch_silent_for(now - self._last_event)
        self._watchers |= {task for task in self._tasks() if task.get_name().startswith(WATCHER_PREFIX)}
        for task in self._watchers:
            if task.done() and self._is_fault(task, now):
                return f"the {task.get_name()} has ended: {_cause(task)}"
        if not self._watchers and now - self._started > _START_SECONDS:
            return f"no watcher has started within {_START_SECONDS:.0f} s"
        for key, since in self._undelivered.items():
            if now - since > UNDELIVERED_SECONDS:
                return f"no watch has delivered the change of {key.namespace}/{key.name} for {now - since:.0f} s"
        return ""

    def _is_fault(self, task: "asyncio.Task[Any]", now: float) -> bool:
        """True if an ended watcher is a fault: at once if it was not cancelled, otherwise after 15 s."""
        if not task.cancelled():
            return True
        self._cancelled_at = now if self._cancelled_at is None else self._cancelled_at
        return now - self._cancelled_at > _CANCELLED_SECONDS

    async def run(self) -> str:
        """Check every second; return the fault once there is one."""
        while not (fault := self.fault()):
            await self._sleep(1.0)
        log.error("the watches have failed: %s", fault)
        return fault


def _cause(task: "asyncio.Task[Any]") -> str:
    if task.cancelled():
        return "cancelled"
    return str(task.exception() or "without an error")
