"""Ends the process when watching has stopped working: Kopf logs a dead watcher and goes on without it.

Two ways to be dead. A watcher's task has ended: seen in the event loop by its name. Or it is silent: the sweep has
listed a change that no watch has delivered for longer than a live watch could take (Kopf reconnects an idle one
after 70 s). Silence alone proves nothing, a quiet cluster is silent too.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from sluice_operator.metrics import OperatorMetrics
from sluice_operator.world import Key

log = logging.getLogger(__name__)

WATCHER_PREFIX: Final = "watcher for "  # how Kopf names the task of each watch
SILENCE_SECONDS: Final = 75.0
_CANCELLED_SECONDS: Final = 15.0  # a cancelled watcher means that Kopf is stopping, unless it goes on
_START_SECONDS: Final = 60.0  # within which Kopf must have started to watch


class Watchdog:
    """Knows what was delivered and what should have been. Times are monotonic seconds."""

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
        self._delivered: dict[Key, tuple[str, float]] = {}  # resourceVersion, when
        self._undelivered: dict[Key, float] = {}
        self._last_event = clock()
        self._started = clock()
        self._watching = False

    def start(self) -> None:
        """From now on watchers are expected: this process holds the Lease."""
        self._watching = True
        self._started = self._last_event = self._clock()

    def heard(self, key: Key, version: str) -> None:
        """A watch delivered this resource at this resourceVersion."""
        self._last_event = self._clock()
        self._delivered[key] = (version, self._last_event)
        self._undelivered.pop(key, None)

    def asks(self) -> float:
        """A list is about to be asked for; give the answer to `listed`."""
        return self._clock()

    def listed(self, versions: dict[Key, str], asked: float) -> None:
        """The list that was asked for then has shown these. What no watch has delivered in this version starts to age.

        What a watch delivered since is newer than the list: a resource that was created meanwhile is not in it, and was
        forgotten here once, though no watch would ever deliver it again."""
        now = self._clock()
        since = {key for key, (_, heard) in self._delivered.items() if heard >= asked}
        for gone in self._delivered.keys() - versions.keys() - since:
            del self._delivered[gone]
        self._undelivered = {
            key: self._undelivered.get(key, now)
            for key, version in versions.items()
            if key not in since and self._delivered.get(key, ("", 0.0))[0] != version
        }

    def verdict(self) -> str:
        """Why the process must end; empty while all is well."""
        if not self._watching:
            return ""
        now = self._clock()
        self._metrics.watch_silent_for(now - self._last_event)
        self._watchers |= {task for task in self._tasks() if task.get_name().startswith(WATCHER_PREFIX)}
        for task in self._watchers:
            if task.done() and self._dead(task, now):
                return f"the {task.get_name()} has ended: {_ending(task)}"
        if not self._watchers and now - self._started > _START_SECONDS:
            return f"no watcher has started within {_START_SECONDS:.0f} s"
        for key, since in self._undelivered.items():
            if now - since > SILENCE_SECONDS:
                return f"no watch has delivered the change of {key.namespace}/{key.name} for {now - since:.0f} s"
        return ""

    def _dead(self, task: "asyncio.Task[Any]", now: float) -> bool:
        """Whether an ended watcher is a fault: at once where it failed, later where it was cancelled."""
        if not task.cancelled():
            return True
        self._cancelled_at = now if self._cancelled_at is None else self._cancelled_at
        return now - self._cancelled_at > _CANCELLED_SECONDS

    async def run(self) -> str:
        """Return the verdict once there is one."""
        while not (verdict := self.verdict()):
            await self._sleep(1.0)
        log.error("watching has stopped working: %s", verdict)
        return verdict


def _ending(task: "asyncio.Task[Any]") -> str:
    if task.cancelled():
        return "cancelled"
    return str(task.exception() or "without an error")
