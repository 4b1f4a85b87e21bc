"""What the gateway adds to a stream beside a plain proxy of the same library, over a null engine.

Forty short interleaved runs of each side, in both orders: what a side adds is some tenths of a millisecond, and one run's
p50 differs by as much from the next. Open loop: streams begin at a fixed rate, and a stream's time counts from when it was
due; what a side adds is its percentile of all runs together, which hides no rare stall, less that of the engine alone.
Closed loop: as many events as 64 clients can read.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import chain
from pathlib import Path
from typing import Final

import uvloop

from sluice import contract
from tests.bench.gateway.cheap_client import CheapClient
from tests.bench.gateway.null_engine import EVENTS
from tests.bench.gateway.processes import gateway, null_engines, plain_proxy
from tests.bench.report.row import Report, Row, at_least, at_most

RATE: Final = 500.0  # streams per second of the bar
RUNS: Final = 40
SECONDS: Final = 1.0  # of one run's open loop
CLOSED_SECONDS: Final = 0.5
CLIENTS: Final = 64
MOST_ADDED: Final = 1.3  # times the plain proxy's
LEAST_EVENTS: Final = 0.8
START_SECONDS: Final = 0.5  # in which the tasks of all streams are created, before the first is due
HANGING_SECONDS: Final = 60.0  # of a loop that has not ended
STEADY_SECONDS: Final = 0.05  # p99 of the plain proxy at a rate that this machine can carry
_TEXT: Final = "Explain the KV cache of a language model, step by step. " * 20


def report(out: Path, say: Callable[[str], None]) -> Report:
    """The rows of this part."""
    return uvloop.run(_report(say))


async def _report(say: Callable[[str], None]) -> Report:
    async with AsyncExitStack() as stack:
        engines = await stack.enter_async_context(null_engines(4))
        plain = await stack.enter_async_context(plain_proxy(engines.urls[0]))
        ours = await stack.enter_async_context(gateway(engines))
        sides = {"direct": engines.urls[0], "plain": plain.urls[0], "gateway": ours.urls[0]}
        clients = {name: await stack.enter_async_context(CheapClient(url)) for name, url in sides.items()}
        for client in clients.values():
            await closed_loop(client, 0.5)
        rate = await _carried_rate(clients["plain"], say)
        times: dict[str, list[list[float]]] = {name: [] for name in sides}
        events: dict[str, list[float]] = {name: [] for name in sides}
        for run in range(RUNS):
            say(f"run {run + 1} of {RUNS} at {rate:g} streams/s")
            for name in sorted(sides, reverse=run % 2 == 1):
                times[name].append(await open_loop(clients[name], rate, SECONDS))
                events[name].append(await closed_loop(clients[name], CLOSED_SECONDS))
    return Report(list(_rows(rate, times, events)), {"rate": rate, "events_per_second": events})


async def _carried_rate(client: CheapClient, say: Callable[[str], None]) -> float:
    """The bar's rate, or a half, a quarter, … of it, which the plain proxy carries here without a queue."""
    rate = RATE
    while rate > 10.0:
        say(f"whether a plain proxy carries {rate:g} streams/s here")
        if percentile(await open_loop(client, rate, 2.0), 0.99) <= STEADY_SECONDS:
            break
        rate /= 2.0
    return rate


def _rows(
    rate: float, times: Mapping[str, Sequence[Sequence[float]]], events: Mapping[str, Sequence[float]]
) -> list[Row]:
    rows = [at_least("streams/s that a plain proxy carries on this machine", rate, RATE)]
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        found = {side: percentile(list(chain.from_iterable(runs)), share) for side, runs in times.items()}
        plain, ours = (found[side] - found["direct"] for side in ("plain", "gateway"))
        row = f"added {name} at {rate:g} streams/s over the plain proxy's ({plain * 1000:.2f} ms)"
        rows.append(at_most(row, ours / plain if plain > 0 else None, MOST_ADDED, " ×"))
    ratio = statistics.median(events["gateway"]) / statistics.median(events["plain"])
    rows.append(at_least("events/s over the plain proxy's", ratio, LEAST_EVENTS, " ×"))
    return rows


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all does not exceed; infinite without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")


async def _stream(client: CheapClient, number: int) -> int:
    """One stream read to its end; returns its events. A stream that is not whole raises."""
    body = {"model": "null", "stream": True, "messages": [{"role": "user", "content": f"{number % 50} {_TEXT}"}]}
    status, answer = await client.post(contract.PATH_CHAT_COMPLETIONS, json.dumps(body).encode())
    if status != 200 or (found := answer.count(b"\n\n") - 1) != EVENTS:
        raise RuntimeError(f"status {status}: {answer[:200]!r}")
    return found


async def open_loop(client: CheapClient, rate: float, seconds: float) -> list[float]:
    """Seconds from when each stream was due to its end, of streams begun at `rate` per second."""
    begun = time.perf_counter() + START_SECONDS
    found: list[float] = []

    async def one(number: int) -> None:
        due = begun + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await _stream(client, number)
        found.append(time.perf_counter() - due)

    async with asyncio.timeout(HANGING_SECONDS), asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            group.create_task(one(number))
    return found


async def closed_loop(client: CheapClient, seconds: float) -> float:
    """Events per second that CLIENTS clients read, each with one stream after the other."""
    begun, events = time.perf_counter(), 0

    async def one(number: int) -> None:
        nonlocal events
        while time.perf_counter() - begun < seconds:
            found = await _stream(client, number)  # not `events += await`, which reads `events` before it waits
            events += found

    async with asyncio.timeout(HANGING_SECONDS), asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(one(number))
    return events / (time.perf_counter() - begun)
