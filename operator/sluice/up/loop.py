"""Composition of `sluice up`: the operator's reconcile over a LocalCluster, the gateway, and the shutdown."""

import asyncio
import logging
import secrets
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluice import contract
from sluice.up.fault import CannotServe, permanent_fault
from sluice.up.file import LocalResource
from sluice.up.show import Show
from sluice.up.snapshot import take
from sluice.up.state_file import StateFile
from sluice.up.wording import PERMANENT, local_words
from sluice_gateway.holding import HoldQueue
from sluice_gateway.keys.gatekeeper import KeyOptions
from sluice_gateway.queueing import QueueLimits
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.routing import Routing
from sluice_gateway.server import Gateway, GatewayOptions
from sluice_operator.api import LLMDeployment
from sluice_operator.autoscaler.values import Decision
from sluice_operator.cluster.client import Key
from sluice_operator.cluster.local import LocalCluster, LocalClusterOptions
from sluice_operator.cluster.local.launch import write_private
from sluice_operator.engines.client import HttpScraper
from sluice_operator.reconcile.children.admin_token import make_key
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
    api_keys: Path | None = None


class Loop:
    """The reconcile loop of one LLMDeployment on this machine."""

    def __init__(
        self, local: LocalResource, options: UpOptions, keys: KeyOptions, show: Show, scraper: HttpScraper
    ) -> None:
        self._key: Key = local.key
        self._show = show
        self._interval = options.interval
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._shown: Decision | None = None
        self._served = False  # a replica was ready
        self._state_file = StateFile(local.key)
        self.hold_queue = HoldQueue(
            hold=local.resource.spec.scaling.min_replicas == 0, expected=self._expected, on_change=self._changed.set
        )
        self.cluster = LocalCluster(
            LocalClusterOptions(
                options.state_dir,
                replicas=local.resource.spec.scaling.max_replicas,
                api_keys=keys.api_keys,
                gateway_token=keys.engine_token,
            ),
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
        return [Backend(name, host, data, f"http://{host}:{admin}") for name, host, data, admin in found]

    def _expected(self) -> float | None:
        decision = self._reconciler.decisions.get(self._key)
        return None if decision is None else decision.retry_after

    def stop(self) -> None:
        """First call: drain and stop. Second call: kill at once."""
        if self._stop.is_set():
            self.cluster.kill()
        self._stop.set()
        self._changed.set()

    async def _publish(self) -> None:
        """Write what `sluice explain --local` reads. Serving does not depend on it."""
        resource = await self.cluster.get(contract.KIND, self._key.namespace, self._key.name)
        try:
            if resource is not None:
                self._state_file.write(resource)
        except OSError as error:
            _log.warning("`sluice explain --local` cannot explain this process: %s", error)

    def forget(self) -> None:
        """Remove what `sluice explain --local` reads."""
        self._state_file.remove()

    async def run(self, gateway: Gateway) -> CannotServe | None:
        """Reconcile at the interval and soon after any change, until `stop` is called or the output has no reader.

        Returns the fault if no replica was ever ready and none can become so.
        """
        while not self._stop.is_set() and not self._show.gone:
            self._changed.clear()
            try:
                await self._reconciler.reconcile(self._key)
            except Exception as error:  # noqa: BLE001  the loop survives a failed pass; the next pass starts afresh
                _log.debug("pass failed", exc_info=True)
                self._show.event("note", {"reason": "PassFailed", "message": str(error), "warning": True})
            self._show_decision()
            snapshot = await take(self._key, self.cluster, self._reconciler, gateway.url, gateway.waiting)
            self._show.snapshot(snapshot)
            await self._publish()
            self._served = self._served or snapshot.ready > 0
            if not self._served and (fault := permanent_fault(snapshot)) is not None:
                return fault
            await self._pause()
        return None

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
        if reason in DECISIONS or reason in PERMANENT:  # reported as a decision, and with the replica
            return
        self._show.event("note", {"reason": reason, "message": local_words(message), "warning": warning})


async def up(local: LocalResource, options: UpOptions, show: Show) -> None:
    """Run until SIGINT or SIGTERM; returns after every replica has drained and every process has ended.

    Raises KeysInvalid, PortTaken, and CannotServe after the same end.
    """
    async with HttpScraper() as scraper:
        keys = _key_options(options)
        loop = Loop(local, options, keys, show, scraper)
        routing, usual = local.resource.spec.routing, Routing()
        served = GatewayOptions(
            port=options.port,
            policy=routing.policy or usual.policy,
            session_header=routing.session_header,
            queue=QueueLimits(),
            keys=keys,
        )
        async with Gateway(loop.backends, served, loop.hold_queue) as gateway, _signals(loop):
            started = {"name": local.key.name, "url": gateway.url, "logs": str(options.state_dir)}
            show.event("started", {"message": f"{gateway.url}, logs in {options.state_dir}", **started})
            if (note := memory_note(local.resource)) is not None:
                show.event("note", {"reason": "MemoryShared", "message": note, "warning": False})
            fault = None
            try:
                fault = await loop.run(gateway)
            finally:
                why = "no replica can start" if fault is not None else "draining; press Ctrl-C again to end at once"
                show.event("stopping", {"message": why})
                gateway.drain()
                await loop.cluster.close()
                loop.forget()
    show.event("stopped", {"message": "no process is left"})
    if fault is not None:
        raise fault


def _key_options(options: UpOptions) -> KeyOptions:
    """The gateway verifies keys, and the engines take its word by a token that this process makes."""
    if options.api_keys is None:
        return KeyOptions()
    token = options.state_dir / "gateway.token"
    write_private(token, secrets.token_hex(32).encode())
    return KeyOptions(options.api_keys, token)


def memory_note(resource: LLMDeployment) -> str | None:
    """How the replicas share this machine's memory; None if the file gives the size of their KV cache, or for one."""
    most, kv_cache = resource.spec.scaling.max_replicas, resource.spec.engine.kv_cache
    if kv_cache.size or most == 1:
        return None
    return (
        f"each of up to {most} replicas takes {kv_cache.memory_percent / most:.0f} % of the free memory for its KV cache "
        f"({kv_cache.memory_percent} % shared by maxReplicas); spec.engine.kvCache.size sets another size"
    )


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
