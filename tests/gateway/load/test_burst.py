"""Ten thousand requests at once: each is answered, or told when to come again, and memory is the same after every burst."""

import asyncio
import resource
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from tests.engine.server.auth.keys import bearer, entry, key_file
from tests.gateway.engines import CHAT, FakeEngine, load_document
from tests.gateway.load.processes import gateway_process

REQUESTS: Final = 10_000
FILES: Final = 11_000  # of this process: one per request, and those of the engines
RATE: Final = 100  # requests a minute of one of the two keys
ANSWERED_BEFORE_ENGINES: Final = 8_000  # at least: engines run 64, and the queue has 1024
MOST_BYTES: Final = 250e6  # resident, while all are connected
BODY: Final = b'{"model": "chat", "messages": [{"role": "user", "content": "' + b"word " * 200 + b'"}]}'


class Asking(asyncio.Protocol):
    """One request on a connection of its own; `answer` has what came until the connection ended."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.answer = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sends the request."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Keeps it."""
        self.answer += data

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of the answer."""
        self.ended.set_result(None)


@pytest.fixture
def many_files() -> None:
    """Room for the sockets of all requests."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        pytest.skip(f"{REQUESTS} connections need {FILES} open files; the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))


async def burst(port: int, engines_answer: asyncio.Event) -> Counter[int]:
    """All requests at once, half of them by each key; returns their statuses. The engines answer once most are rejected."""
    engines_answer.clear()
    loop = asyncio.get_running_loop()
    statuses: Counter[int] = Counter()

    async def ask(name: str) -> None:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: {bearer(name)}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
        _, asking = await loop.create_connection(lambda: Asking(head.encode() + BODY), "127.0.0.1", port)
        await asking.ended
        lines = asking.answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
        status = int(lines[0].split()[1])
        statuses[status] += 1
        assert status == 200 or any(line.lower().startswith(b"retry-after: ") for line in lines)
        if statuses.total() == ANSWERED_BEFORE_ENGINES:
            engines_answer.set()

    async with asyncio.timeout(300), asyncio.TaskGroup() as group:
        for number in range(REQUESTS):
            group.create_task(ask("limited" if number % 2 else "free"))
    return statuses


@pytest.mark.usefixtures("many_files")
async def test_ten_thousand_requests_at_once_are_200_429_or_503_and_leave_no_memory_behind(tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_bytes(key_file(entry("free"), entry("limited", requestsPerMinute=RATE)))
    engines_answer = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        await engines_answer.wait()
        return web.json_response({})

    engines = [FakeEngine(f"r{n}", load_document(limit=32), answer) for n in range(2)]
    for engine in engines:
        await engine.start()
    try:
        options = ("--api-keys-file", str(tmp_path / "keys.yaml"))
        async with gateway_process(engines, tmp_path / "log", *options) as gateway:
            found, resident = [], []
            for _ in range(2):
                found.append(await burst(gateway.port, engines_answer))
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
    assert resident[-1] <= 1.1 * resident[0]
    assert peak <= MOST_BYTES


def memory(pid: int, field: str) -> int:
    """Bytes by the process's status: VmRSS now, VmHWM at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024
