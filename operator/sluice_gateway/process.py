"""The gateway as a process: serves until a signal, then drains as engines do.

    serving ──SIGTERM──► unready, still serving ──grace──► rejecting ──no request in flight, or the budget──► closed

Endpoints lag: for some seconds after a pod turns unready, clients still connect to it. A second signal ends it at once.
What is in flight at the end is told so: a stream by its last event, other requests by a 503.
"""

import asyncio
import contextlib
import logging
import resource
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from sluice import contract
from sluice.event_loop import loop_factory
from sluice.httpapi.garbage import collect_rarely
from sluice_gateway.routes import MAX_IN_FLIGHT
from sluice_gateway.server import Gateway

OPEN_FILES: Final = 2 * MAX_IN_FLIGHT + 512

log = logging.getLogger("sluice.gateway")


@dataclass(frozen=True, slots=True)
class DrainTimes:
    """Seconds for which new requests are still served, and then at most for those in flight to complete."""

    grace: float = contract.DRAIN_GRACE_SECONDS
    budget: float = 300.0


def run(gateway: Callable[[], AbstractAsyncContextManager[Gateway]], times: DrainTimes) -> int:
    """Serve by the gateway that `gateway()` opens until SIGTERM or SIGINT, then drain. Raises what opening it raises.

    Returns the exit code: EXIT_FAILED if requests had to be cut off.
    """
    _raise_open_files()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(gateway, times))


def _raise_open_files() -> None:
    """Raises the soft limit of open files, which is often 1024: a request takes two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # some systems have a lower maximum than the reported limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _serve(open_gateway: Callable[[], AbstractAsyncContextManager[Gateway]], times: DrainTimes) -> int:
    signals: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, None)
    try:
        async with open_gateway() as gateway:
            collect_rarely()
            log.info("listening on %s, metrics on %s", gateway.url, gateway.admin_url)
            await signals.get()
            await drain(gateway, signals, times)
            cut = await gateway.cut()
            if cut:
                log.warning("%d requests were still in flight and are cut off", cut)
            return contract.EXIT_FAILED if cut else contract.EXIT_OK
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def drain(gateway: Gateway, signals: asyncio.Queue[None], times: DrainTimes) -> None:
    """Return when no request is in flight, the budget is spent, or another signal comes."""
    second = asyncio.create_task(signals.get())
    try:
        gateway.unready()
        log.info("draining: new requests are served for %g s", times.grace)
        await asyncio.wait({second}, timeout=times.grace)
        gateway.drain()
        idle = asyncio.create_task(gateway.idle())
        if not second.done():
            await asyncio.wait({second, idle}, timeout=times.budget, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
    finally:
        second.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await second
