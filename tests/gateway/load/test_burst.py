"""Ten thousand requests at once at a gateway: each is answered, or told when to come again, and memory stays bounded."""

import asyncio
from pathlib import Path
from typing import Final

from aiohttp import web

from tests.burst import KEYS, RATE, REQUESTS, allow_files, burst, memory
from tests.gateway.engines import FakeEngine, load_document
from tests.gateway.load.processes import gateway_process

ANSWERED_BEFORE_ENGINES: Final = 8_000  # at least: engines run 64, and the queue has 1024
MOST_BYTES: Final = 250e6  # resident, while all are connected
MOST_GROWTH: Final = 1.1  # by a burst, of the memory that the ones before have left
MOST_BURSTS: Final = 3  # the second may come faster than the first and need more; a leak grows with each
BODY: Final = b'{"model": "chat", "messages": [{"role": "user", "content": "' + b"word " * 200 + b'"}]}'


async def test_ten_thousand_requests_at_once_are_200_429_or_503_and_leave_no_memory_behind(tmp_path: Path) -> None:
    allow_files()
    (tmp_path / "keys.yaml").write_bytes(KEYS)
    engines_answer = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        await engines_answer.wait()
        return web.json_response({})

    def answered(count: int) -> None:
        if count == ANSWERED_BEFORE_ENGINES:
            engines_answer.set()

    engines = [FakeEngine(f"r{n}", load_document(limit=32), answer) for n in range(2)]
    for engine in engines:
        await engine.start()
    try:
        options = ("--api-keys-file", str(tmp_path / "keys.yaml"))
        async with gateway_process(engines, tmp_path / "log", *options) as gateway:
            found, resident = [], list[int]()
            while len(resident) < 2 or (_grows(resident) and len(resident) < MOST_BURSTS):
                engines_answer.clear()
                found.append(await burst(gateway.port, BODY, answered))
                resident.append(memory(gateway.pid, "VmRSS"))
            peak = memory(gateway.pid, "VmHWM")
    finally:
        for engine in engines:
            await engine.stop()
    for statuses in found:
        assert statuses.keys() == {200, 429, 503}
        assert statuses.total() == REQUESTS
        assert statuses[200] >= 64
    assert found[0][429] >= REQUESTS / 2 - 2 * RATE  # a bucket holds a minute of its rate, and fills during the burst
    assert not _grows(resident), resident
    assert peak <= MOST_BYTES


def _grows(resident: list[int]) -> bool:
    return resident[-1] > MOST_GROWTH * max(resident[:-1])
