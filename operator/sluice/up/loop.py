"""Composition of `sluice up`: the operator's reconcile over a LocalCluster, the gateway, and the shutdown."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluice.up.file import LocalResource
from sluice.up.show import Show
from sluice.up.snapshot import take
from sluice_gateway import Backend, Gateway, HoldQueue
from sluice_operator.autoscaler.values import Decision
from sluice_operator.cluster.client import Key
from sluice_operator.cluster.local import LocalCluster, LocalClusterOptions
from sluice_operator.engines.client import HttpScraper
from sluice_operator.reconcile.admin_token import make_key
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.settings import Settings

SETTLE_SECONDS: Final = 0.2  # pod changes come in groups, so one pass handles a whole group
DECISIONS: Final = ("ScaledUp", "ScaledDown", "ScalingAdvised", "LimitsMoved", "RequestsRefused", "OtherWriter")
STATUS_SECONDS: Final = 2.0  # this status has no external watchers

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Options of `sluice up`. Times in seconds."""

    port: int
    interval: float
    state_dir: Path


class Loop:
    """The reconcile loop of one LLMDeployment on this machine."""

    def __init__(self, local: LocalResource, options: UpOptions, show: Show, scraper: HttpScraper) -> None:
        self._key: Key = local.key
        self._show = show
        self._interval = options.interval
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._shown: Decision | None = None
        self.hold_queue = HoldQueue(
            hold=local.resource.spec.scaling.min_replicas == 0, expected=self._expected, on_held=self._changed.set
        )
        self.cluster = LocalCluster(
            LocalClusterOptions(options.state_dir),
            on_change=self._changed.set,
            on_event=self._on_event,
            held=lambda: self.hold_queue.held,
        )
        self.cluster.put(local.manifest)
        self._reconciler = Reconciler(
            Context(
                cluster=self.cluster,
                scraper=scraper,
                settings=Settings(interval=options.interval, status_interval=STATUS_SECONDS),
                token_key=make_key(),  # engines end with this process, so their tokens need not outlive it
            )
        )

    def backends(self) -> Sequence[Backend]:
        """The replicas that the gateway may route to now."""
        found = self.cluster.backends(self._key.namespace, self._key.name)
        return [Backend(name, host, port) for name, host, port in found]

    def _expected(self) -> float | None:
        decision = self._reconciler.decisions.get(self._key)
        return None if decision is None else decision.retry_after

    def stop(self) -> None:
        """First call: drain and stop. Second call: kill at once."""
        if self._stop.is_set():
            self.cluster.kill()
        self._stop.set()
        self._changed.set()

    async def run(self, url: str) -> None:
        """Reconcile at the interval and soon after any change, until `stop` is called or the output has no reader."""
        while not self._stop.is_set() and not self._show.gone:
            self._changed.clear()
            try:
                await self._reconciler.reconcile(self._key)
            except Exception as error:  # noqa: BLE001  the loop survives a failed pass; the next pass starts afresh
                _log.debug("pass failed", exc_info=True)
                self._show.event("note", {"reason": "PassFailed", "message": str(error), "warning": True})
            self._show_decision()
            self._show.snapshot(await take(self._key, self.cluster, self._reconciler, url))
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._interval):
                await self._changed.wait()
                if not self._stop.is_set():
                    await asyncio.sleep(SETTLE_SECONDS)
        except TimeoutError:
            return

    def _show_decision(self) -> None:
        decision = self._reconciler.decisions.get(self._key)
        if decision is None or decision is self._shown:
            return
        self._shown = decision
        for reason in decision.reasons:
            self._show.event(
                "decision",
                {
                    "dial": reason.dial,
                    "from": reason.before,
                    "to": reason.after,
                    "reason": reason.binding,
                    "message": reason.sentence,
                    "numbers": dict(reason.numbers),
                },
            )

    def _on_event(self, reason: str, message: str, warning: bool) -> None:
        if reason in DECISIONS:  # reported in full as a decision
            return
        self._show.event("note", {"reason": reason, "message": message, "warning": warning})


async def up(local: LocalResource, options: UpOptions, show: Show) -> None:
    """Run until SIGINT or SIGTERM; returns after every replica has drained and every process has ended.

    Raises PortTaken.
    """
    async with HttpScraper() as scraper:
        loop = Loop(local, options, show, scraper)
        async with Gateway(loop.backends, port=options.port, hold_queue=loop.hold_queue) as gateway, _signals(loop):
            show.event("started", {"name": local.key.name, "url": gateway.url, "logs": str(options.state_dir)})
            try:
                await loop.run(gateway.url)
            finally:
                show.event("stopping", {"message": "draining; press Ctrl-C again to end at once"})
                gateway.drain()
                await loop.cluster.close()
    show.event("stopped", {"message": "no process is left"})


@asynccontextmanager
async def _signals(loop: Loop) -> AsyncIterator[None]:
    running = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        running.add_signal_handler(number, loop.stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            running.remove_signal_handler(number)
