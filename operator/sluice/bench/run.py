"""Runs a load: open loop at its arrival times, or closed loop with a fixed number of clients."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine

import aiohttp

from sluice.bench.client import ask, model_name
from sluice.bench.load import Load
from sluice.bench.report import Report, Tally
from sluice.bench.result import Result

OnResult = Callable[[Result], None]
SendOne = Callable[[int, float], Awaitable[None]]  # a request by its index and the time at which it is due


async def run(
    load: Load,
    on_result: OnResult | None = None,
    stop: asyncio.Event | None = None,
    interrupt: asyncio.Event | None = None,
) -> Report:
    """Run `load` against its server and return the report.

    `on_result` receives each result when it is complete. After `stop` is set no request is sent, and those in flight
    finish. Once `interrupt` is set, requests in flight are abandoned too, and the report is of those that finished.
    Raises BenchError if the server's model cannot be determined.
    """
    in_flight = load.concurrency or load.max_in_flight
    headers = {"Authorization": f"Bearer {load.api_key}"} if load.api_key else None
    # As in the official client: five seconds to connect, and a timeout per attempt.
    timeout = aiohttp.ClientTimeout(total=load.timeout, sock_connect=5.0)
    connector = aiohttp.TCPConnector(limit=in_flight, force_close=not load.keep_alive)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as session:
        model = await model_name(session, load)
        tally = Tally(load)

        async def one(index: int, due: float) -> None:
            tally.sent += 1
            result = await ask(session, load, model, index, due, start)
            tally.add(result)
            if on_result is not None:
                on_result(result)

        start = time.perf_counter()
        drive = _open_loop if load.rate is not None else _closed_loop
        await _until(interrupt or asyncio.Event(), drive(load, start, one, stop or asyncio.Event()))
        return tally.report(model, time.perf_counter() - start)


async def _until(interrupt: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    """Do the work until its end, or until `interrupt` is set."""
    working, interrupted = asyncio.create_task(work), asyncio.create_task(interrupt.wait())
    try:
        await asyncio.wait((working, interrupted), return_when=asyncio.FIRST_COMPLETED)
    finally:
        interrupted.cancel()
        working.cancel()  # no effect on a finished task
    with contextlib.suppress(asyncio.CancelledError):
        await working


async def _open_loop(load: Load, start: float, one: SendOne, stop: asyncio.Event) -> None:
    places = asyncio.Semaphore(load.max_in_flight)

    async def placed(index: int, due: float) -> None:
        async with places:
            await one(index, due)

    async with asyncio.TaskGroup() as group:
        for index, offset in enumerate(load.arrivals()):
            if await _stopped_within(stop, start + offset - time.perf_counter()):
                return
            group.create_task(placed(index, start + offset))


async def _closed_loop(load: Load, start: float, one: SendOne, stop: asyncio.Event) -> None:
    numbers = load.numbered()
    end = start + load.duration if load.duration is not None else float("inf")

    async def user() -> None:
        for index in numbers:
            now = time.perf_counter()
            if stop.is_set() or now >= end:
                return
            await one(index, now)

    async with asyncio.TaskGroup() as group:
        for _ in range(load.concurrency or 1):
            group.create_task(user())


async def _stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    """Wait `seconds` or until stopped; True if stopped."""
    if seconds > 0 and not stop.is_set():
        try:
            async with asyncio.timeout(seconds):
                await stop.wait()
        except TimeoutError:
            return False
    return stop.is_set()
