"""The load: HTTP/1.1 clients over real sockets, in a process of their own.

`python -m tests.bench.http_process.clients` reads one `Load` as JSON, runs it and prints a `Seen` as JSON. A client is a bare
protocol that counts the events of a stream, so that two cores are enough for it and the server.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from typing import Final

import uvloop

from tests.bench.http_process.direct import direct_client

CONNECT_AT_ONCE: Final = 500
END: Final = b"0\r\n\r\n"
DIRECT_TOKENS: Final = 8


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent. `rate` requests per second over `connections` kept open; 0: one on each connection, all at once."""

    port: int
    body: str
    connections: int
    requests: int
    rate: float = 0.0
    headers: str = ""
    polled_port: int = 0  # `/livez` is asked here meanwhile; 0: not
    poll_seconds: float = 0.01
    direct_step_seconds: float = 0.0  # between two requests one goes to an engine without HTTP process; 0: none does
    direct_prompt: int = 100  # tokens of its prompt


@dataclass(slots=True)
class Seen:
    """What came back. Times in seconds."""

    statuses: dict[int, int] = field(default_factory=dict)  # responses by status; −1: not answered whole
    events: int = 0
    seconds: float = 0.0  # from the first request to the last response
    first_event: list[float] = field(default_factory=list)  # per request, from its first byte sent
    livez: list[float] = field(default_factory=list)
    direct_first: list[float] = field(default_factory=list)  # as `first_event`, without HTTP process


def run(load: Load) -> Seen:
    """Run the load in a process of its own. Raises CalledProcessError."""
    command = [sys.executable, "-m", "tests.bench.http_process.clients"]
    given = json.dumps(asdict(load))
    with tempfile.TemporaryFile("w+") as out:  # a pipe would be read in pieces while the load runs
        subprocess.run(command, check=True, input=given, stdout=out, text=True)
        out.seek(0)
        found = json.load(out)
    found["statuses"] = {int(status): count for status, count in found["statuses"].items()}
    return Seen(**found)


class Client(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._transport: asyncio.Transport | None = None
        self._received = b""  # of the current response's head, then the last bytes of its body
        self._status = 0
        self._left: int | None = None  # bytes of a body with a length; None: chunks
        self._sent_at = 0.0
        self.done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = transport  # type: ignore[assignment]

    def send(self, request: bytes) -> "asyncio.Future[None]":
        """Send a request; the future is done at the end of its response."""
        self.done = asyncio.get_running_loop().create_future()
        self._received, self._status, self._left = b"", 0, None
        self._sent_at = time.perf_counter()
        if self._transport is None or self._transport.is_closing():
            self._end(-1)
        else:
            self._transport.write(request)
        return self.done

    def data_received(self, data: bytes) -> None:
        """Reads the head, then counts events up to the end of the body."""
        if not self._status:
            self._received += data
            head, found, data = self._received.partition(b"\r\n\r\n")
            if not found:
                return
            self._begin(head)
        if self._left is not None:
            self._left -= len(data)
            if self._left <= 0:
                self._end(self._status)
            return
        events = data.count(b"data: ")
        if events and self._sent_at:
            self._seen.first_event.append(time.perf_counter() - self._sent_at)
            self._sent_at = 0.0
        self._seen.events += events
        self._received = (self._received + data)[-len(END) :]
        if self._received == END:
            self._end(self._status)

    def _begin(self, head: bytes) -> None:
        self._status, self._received = int(head[9:12]), b""
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                self._left = int(value)

    def _end(self, status: int) -> None:
        if self.done is not None and not self.done.done():
            self._seen.statuses[status] = self._seen.statuses.get(status, 0) + 1
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """A response that has not ended counts with the status −1."""
        self._end(-1)


async def _connected(port: int, count: int, seen: Seen) -> list[Client]:
    loop, found = asyncio.get_running_loop(), list[Client]()
    for first in range(0, count, CONNECT_AT_ONCE):
        number = min(CONNECT_AT_ONCE, count - first)
        made = await asyncio.gather(
            *(loop.create_connection(lambda: Client(seen), "127.0.0.1", port) for _ in range(number))
        )
        found += [client for _, client in made]
    return found


async def _poll(load: Load, seen: Seen) -> None:
    others = Seen()
    (client,) = await _connected(load.polled_port, 1, others)
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    while True:
        begun = time.perf_counter()
        await client.send(request)
        seen.livez.append(time.perf_counter() - begun)
        await asyncio.sleep(load.poll_seconds)


async def _run(load: Load) -> Seen:
    seen = Seen()
    body = load.body.encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{load.headers}"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    polling = asyncio.create_task(_poll(load, seen)) if load.polled_port else None
    clients = await _connected(load.port, load.connections, seen)
    begun = time.perf_counter()
    if load.rate:
        await _at_rate(clients, request, load, seen)
    else:
        await asyncio.gather(*(client.send(request) for client in clients))
    seen.seconds = time.perf_counter() - begun
    if polling is not None:
        polling.cancel()
    return seen


async def _at_rate(clients: list[Client], request: bytes, load: Load, seen: Seen) -> None:
    """Open loop: a request is sent when it is due, on a connection that is free."""
    free, sent = list(clients), list[asyncio.Future[None]]()
    async with contextlib.AsyncExitStack() as stack:
        direct = None
        if load.direct_step_seconds:
            direct = await stack.enter_async_context(direct_client(load.direct_step_seconds))
        begun = time.perf_counter()
        for number in range(load.requests):
            await asyncio.sleep(begun + number / load.rate - time.perf_counter())
            client = free.pop()
            done = client.send(request)
            done.add_done_callback(lambda _, client=client: free.append(client))  # type: ignore[misc]
            sent.append(done)
            if direct is not None:
                await asyncio.sleep(begun + (number + 0.5) / load.rate - time.perf_counter())
                seen.direct_first.append(await direct.first_token((1,) * load.direct_prompt, DIRECT_TOKENS))
        await asyncio.gather(*sent)


def main(load: str) -> None:
    """Run the load and print what was seen."""
    sys.stdout.write(json.dumps(asdict(uvloop.run(_run(Load(**json.loads(load)))))))


if __name__ == "__main__":
    main(sys.stdin.read())
