"""Lifecycle of one replica on this machine, presented as a Kubernetes Pod.

One task per pod acts as the kubelet: it starts, probes and restarts the container with backoff. On deletion it sends
SIGTERM, waits for the drain and kills the remaining processes with SIGKILL. `status()` has the format of the Kubernetes
API, so that `observe` reads it like any pod.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.local.launch import Launch, LocalError, PodFiles
from sluice_operator.cluster.local.probe import probe
from sluice_operator.cluster.local.process import Child, Ports, free_ports, tail
from sluice_operator.cluster.local.store import timestamp

READINESS_FAILURES: Final = 3  # consecutive probes without an answer; a status other than 200 counts at once
LIVENESS_FAILURES: Final = 3  # consecutive failed liveness probes, counted after the first readiness
MESSAGE_BYTES: Final = 4096  # bytes of a termination message that a kubelet keeps


@dataclass(frozen=True, slots=True)
class KubeletPeriods:
    """Periods and timeouts of the kubelet, in seconds."""

    probe: float = 0.5
    live: float = 10.0
    probe_timeout: float = 2.0
    initial_backoff: float = 1.0
    max_backoff: float = 60.0
    backoff_reset: float = 600.0  # a container that ran this long resets the backoff


@dataclass(frozen=True, slots=True)
class Terminated:
    """Exit code, termination message and time (seconds since the epoch) of an ended container."""

    code: int
    message: str
    at: float


class LocalPod:
    """A pod with one container."""

    def __init__(
        self,
        name: str,
        template: Object,
        files: PodFiles,
        launch: Callable[[str, Ports], Launch],
        changed: Callable[[], None],
        periods: KubeletPeriods,
    ) -> None:
        """`launch(name, ports)` returns the command and may raise LocalError. `changed()` is called on every change of
        `status` or `deleting_at`."""
        self.name = name
        self.files = files
        self.created = self._ready_changed = time.time()
        self.ready = False
        self.ports: Ports | None = None  # set while a container runs
        self.pid: int | None = None
        self.deleting_at: float | None = None
        self.restarts = 0
        spec = template.get("spec", {})
        self._container: str = (spec.get("containers") or [{}])[0].get("name", "engine")
        self._grace = float(spec.get("terminationGracePeriodSeconds", 30))
        self._launch = launch
        self._changed = changed
        self._periods = periods
        self._waiting: tuple[str, str] | None = ("ContainerCreating", "")
        self._last: Terminated | None = None
        self._started = 0.0
        self._deleted = asyncio.Event()
        self._child: Child | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the pod's task in the background."""
        self._task = asyncio.create_task(self._live(), name=f"pod {self.name}")

    def delete(self) -> None:
        """Start the deletion: the pod becomes unready at once, then gets SIGTERM and drains."""
        if self.deleting_at is None:
            self.deleting_at = time.time()
            self.ready, self._ready_changed = False, self.deleting_at
            self._deleted.set()
            self._changed()

    def kill(self) -> None:
        """Delete the pod and kill its processes at once, without a drain."""
        self.delete()
        if self._child is not None:
            self._child.kill()

    async def wait_ended(self) -> None:
        """Return once all processes of the pod have ended."""
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(self._task)

    @property
    def has_ended(self) -> bool:
        """True if the pod's task has ended."""
        return self._task is not None and self._task.done()

    async def _live(self) -> None:
        backoff = self._periods.initial_backoff
        while not self._deleted.is_set():
            started = time.monotonic()
            await self._run_once()
            if self._deleted.is_set():
                break
            if time.monotonic() - started >= self._periods.backoff_reset:
                backoff = self._periods.initial_backoff
            await self._back_off(backoff)
            backoff = min(2 * backoff, self._periods.max_backoff)
        self._changed()

    async def _run_once(self) -> None:
        """Run one container from start to end."""
        ports = free_ports()
        self.files.termination.unlink(missing_ok=True)
        try:
            launch = self._launch(self.name, ports)
            child = await Child.start(launch.argv, launch.env, self.files.log)
        except (LocalError, OSError, ValueError) as error:  # ValueError: a Secret that is not base64
            self._waiting = ("CreateContainerConfigError", str(error))
            self._changed()
            return
        self._child, self.ports, self.pid = child, ports, child.pid
        self._waiting, self._started = None, time.time()
        self._changed()
        watchers = (
            asyncio.create_task(self._probe_ready(ports)),
            asyncio.create_task(self._probe_live(ports, child)),
            asyncio.create_task(self._stop_when_deleted(child)),
        )
        try:
            code = await child.wait()
        finally:
            child.kill()
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            self._child, self.ports, self.pid = None, None, None
            self.ready, self._ready_changed = False, time.time()
        self._last = Terminated(code, self._termination_message(), time.time())

    async def _stop_when_deleted(self, child: Child) -> None:
        await self._deleted.wait()
        child.terminate()
        await asyncio.sleep(self._grace)
        child.kill()

    async def _probe_ready(self, ports: Ports) -> None:
        missed = 0
        while not self._deleted.is_set():
            status = await probe(ports.admin, contract.PATH_READYZ, seconds=self._periods.probe_timeout)
            missed = missed + 1 if status is None else 0
            ready = status == 200 or (self.ready and 0 < missed < READINESS_FAILURES)
            if ready != self.ready and not self._deleted.is_set():
                self.ready, self._ready_changed = ready, time.time()
                self._changed()
            await asyncio.sleep(self._periods.probe)

    async def _probe_live(self, ports: Ports, child: Child) -> None:
        """Kill a stuck container, also while it drains: /livez fails only if the engine makes no progress."""
        failed, was_ready = 0, False
        while failed < LIVENESS_FAILURES:
            await asyncio.sleep(self._periods.live)
            was_ready = was_ready or self.ready
            status = await probe(ports.admin, contract.PATH_LIVEZ, seconds=self._periods.live / 2)
            failed = failed + 1 if was_ready and status != 200 else 0
        child.kill()

    async def _back_off(self, seconds: float) -> None:
        self.restarts += 1
        if self._waiting is None:
            self._waiting = ("CrashLoopBackOff", f"back-off {seconds:g} s restarting {self._container}")
        self._changed()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._deleted.wait()

    def _termination_message(self) -> str:
        try:
            message = self.files.termination.read_bytes()[:MESSAGE_BYTES].decode("utf-8", "replace")
        except OSError:
            message = ""
        return message or tail(self.files.log, lines=5, limit=2048)

    def status(self) -> Object:
        """Return the `status` of the Pod in the format of the Kubernetes API."""
        running = self.pid is not None
        at = timestamp(self.created)
        changed = timestamp(self._ready_changed)
        conditions = [
            {"type": kind, "status": "True" if value else "False", "lastTransitionTime": since}
            for kind, value, since in (
                ("PodScheduled", True, at),
                ("Initialized", True, at),
                ("ContainersReady", self.ready, changed),
                ("Ready", self.ready, changed),
            )
        ]
        return {
            "phase": "Running" if running or self.restarts else "Pending",
            "podIP": "127.0.0.1",
            "hostIP": "127.0.0.1",
            "startTime": at,
            "conditions": conditions,
            "containerStatuses": [self._container_status()],
        }

    def _container_status(self) -> Object:
        state: dict[str, Any] = {"running": {"startedAt": timestamp(self._started)}}
        if self.pid is None:
            reason, message = self._waiting or ("ContainerCreating", "")
            state = {"waiting": {"reason": reason, "message": message}}
        last: dict[str, Any] = {}
        if self._last is not None:
            last = {
                "terminated": {
                    "exitCode": self._last.code,
                    "reason": "Completed" if self._last.code == 0 else "Error",
                    "message": self._last.message,
                    "finishedAt": timestamp(self._last.at),
                }
            }
        return {
            "name": self._container,
            "ready": self.ready,
            "started": self.ready,
            "restartCount": self.restarts,
            "state": state,
            "lastState": last,
        }
