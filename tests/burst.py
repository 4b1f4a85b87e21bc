"""Ten thousand requests at once, each on a connection of its own, half of them by a key with a low rate."""

import asyncio
import resource
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from sluice import contract
from tests.engine.server.auth.keys import bearer, entry, key_file

REQUESTS: Final = 10_000
RATE: Final = 100  # requests a minute of one of the two keys
KEYS: Final = key_file(entry("free"), entry("limited", requestsPerMinute=RATE))
_FILES: Final = 11_000  # of this process: one per request, and those of servers of the test
_SECONDS: Final = 300.0


class _Asking(asyncio.Protocol):
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
        if not self.ended.done():
            self.ended.set_result(None)


def allow_files() -> None:
    """Room for the sockets of all requests; skips the test where there is none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _FILES:
        pytest.skip(f"{REQUESTS} connections need {_FILES} open files; the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, _FILES), hard))


async def burst(
    port: int, body: bytes, answered: Callable[[int], None] = lambda _: None, *, at_once: int = REQUESTS
) -> Counter[int]:
    """All requests, so many connections at once; returns their statuses. `answered` is told the number of answers after each.

    What is refused says when to come again.
    """
    loop, places = asyncio.get_running_loop(), asyncio.Semaphore(at_once)
    statuses: Counter[int] = Counter()
    untold: Counter[int] = Counter()

    async def ask(name: str) -> None:
        head = f"POST {contract.PATH_CHAT_COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += (
            f"Authorization: {bearer(name)}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with places:
            _, asking = await loop.create_connection(lambda: _Asking(head.encode() + body), "127.0.0.1", port)
            await asking.ended
        lines = asking.answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
        status = int(lines[0].split()[1]) if asking.answer else 0
        statuses[status] += 1
        untold[status] += status != 200 and not any(line.lower().startswith(b"retry-after: ") for line in lines)
        answered(statuses.total())

    async with asyncio.timeout(_SECONDS), asyncio.TaskGroup() as group:
        for number in range(REQUESTS):
            group.create_task(ask("limited" if number % 2 else "free"))
    if +untold:
        raise AssertionError(f"refused without a Retry-After, or not answered (0): {+untold} of {statuses}")
    return statuses


def memory(pid: int, field: str) -> int:
    """Bytes by the process's status: VmRSS now, VmHWM at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024
