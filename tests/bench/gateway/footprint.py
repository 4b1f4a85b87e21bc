"""The gateway's memory with thousands of open streams, and how long one request can hold its event loop."""

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import aiohttp
import psutil

from sluice import contract
from sluice_gateway.conversation import read_conversation
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.fleet import Fleet
from sluice_gateway.replicas.load import parse_load
from sluice_gateway.routing import Prompt, prefix_hashes
from tests.bench.gateway.null_engine import LOAD
from tests.bench.gateway.processes import Started, gateway, null_engines, plain_proxy
from tests.bench.report.row import Report, Row, at_most

STREAMS: Final = 5000
REPLICAS: Final = 50
MOST_MB: Final = 150.0  # 10⁶ bytes
CHARACTERS: Final = 100_000
MOST_MILLISECONDS: Final = 20.0
_OPENING: Final = 200  # streams being opened at once


def report(out: Path, say: Callable[[str], None]) -> Report:
    """The rows of this part."""
    say(f"one request of {CHARACTERS} characters over {REPLICAS} replicas")
    rows = [loop_row()]
    say(f"{STREAMS} open streams over {REPLICAS} replicas")
    rows.append(asyncio.run(_memory()))
    return Report(rows)


def loop_row() -> Row:
    """All that the gateway computes for one long prompt, without a pause in between."""
    backends = [Backend(f"r{number}", "127.0.0.1", number + 1) for number in range(REPLICAS)]
    fleet = Fleet(lambda: backends)
    for state in fleet.states():
        fleet.back(state, parse_load(json.dumps(LOAD).encode()))
    taken = []
    for turn in range(100):
        content = f"{turn % 10} " + "One more word of a long conversation. " * (CHARACTERS // 38)
        body = json.dumps({"model": "null", "messages": [{"role": "user", "content": content}]}).encode()
        begun = time.thread_time()
        conversation = read_conversation(contract.PATH_CHAT_COMPLETIONS, body)
        steps = prefix_hashes(conversation.text, tenant="", model="null")
        prompt = Prompt(len(conversation.text) / 4, steps, 64.0)
        fleet.end(fleet.begin(fleet.order(prompt, "null")[0], prompt))
        taken.append((time.thread_time() - begun) * 1000.0)
    name = f"processor time of the loop for a prompt of {CHARACTERS} characters, p99 of 100 (median {statistics.median(taken):.1f} ms)"
    return at_most(name, sorted(taken)[98], MOST_MILLISECONDS, " ms")


async def _memory() -> Row:
    async with AsyncExitStack() as stack:
        engines = await stack.enter_async_context(null_engines(REPLICAS))
        ours = await stack.enter_async_context(gateway(engines))
        plain = await stack.enter_async_context(plain_proxy(engines.urls[0]))
        whole, resident = await _with_streams(ours)
        _, floor = await _with_streams(plain)
    name = (
        f"memory with {whole} open streams and {REPLICAS} replicas (a plain proxy of the same library: {floor:.0f} MB)"
    )
    return at_most(name, resident if whole == STREAMS else None, MOST_MB, " MB")


async def _with_streams(server: Started) -> tuple[int, float]:
    """How many streams could be opened, and the server's resident memory with them, MB."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
    ) as client:
        gate = asyncio.Semaphore(_OPENING)

        async def opened(number: int) -> aiohttp.ClientResponse:
            body = {"model": "null", "messages": [{"role": "user", "content": f"{number} " + "word " * 200}]}
            async with gate:
                url = f"{server.urls[0]}/v1/chat/completions"
                response = await client.post(url, json=body, headers={"x-hold": "1"})
                await response.content.readany()
            return response

        responses = await asyncio.gather(*(opened(number) for number in range(STREAMS)))
        whole = sum(response.status == 200 for response in responses)
        resident = psutil.Process(server.pid).memory_info().rss / 1e6  # type: ignore[no-untyped-call]
        for response in responses:
            response.close()
    return whole, resident
