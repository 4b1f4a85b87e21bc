"""The gateway's connections to engines, against a server that writes raw bytes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from sluice_gateway.upstream.answer import MAX_BUFFERED
from sluice_gateway.upstream.connection import EngineConnection
from sluice_gateway.upstream.errors import ConnectFailed, ConnectionLost, NotHttp, UpstreamError
from sluice_gateway.upstream.pool import Connections, Request, head_of

PING = Request("POST", "/v1/completions", [("x-one", "1")], b"{}")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class RawServer:
    """Answers each request with the next of `answers`; None closes the connection. `peers` has one entry per request."""

    answers: list[list[bytes | None]]
    port: int = 0
    peers: list[int] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)  # a request has come
    lost: asyncio.Event = field(default_factory=asyncio.Event)  # a client has closed its connection

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                _, found, length = head.lower().partition(b"content-length: ")
                body = await reader.readexactly(int(length.split(b"\r\n")[0])) if found else b""
                self.peers.append(writer.get_extra_info("peername")[1])
                self.requests.append(head + body)
                self.asked.set()
                for part in self.answers.pop(0):
                    if part is None:
                        writer.close()
                        return
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.lost.set()


@asynccontextmanager
async def raw_server(*answers: list[bytes | None]) -> AsyncIterator[tuple[RawServer, Connections]]:
    fake = RawServer(list(answers))
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    connections = Connections()
    async with asyncio.timeout(60):
        try:
            yield fake, connections
        finally:
            connections.close()
            for writer in fake.writers:
                writer.close()
            server.close()


async def asked(fake: RawServer, connections: Connections, request: Request = PING) -> tuple[int, bytes]:
    """Status and body of one answer, read whole."""
    answer = await connections.send("127.0.0.1", fake.port, request)
    try:
        body = b""
        while part := await answer.read():
            body += part
        return answer.status, body
    finally:
        answer.close()


@pytest.mark.parametrize(
    "parts",
    [
        [OK],
        [OK[:5], OK[5:30], OK[30:]],
        [b"HTTP/1.1 100 Continue\r\n\r\n", OK],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n", b"1\r\nk\r\n0\r\nx-late: 1\r\n\r\n"],
    ],
)
async def test_a_connection_is_used_again_once_its_answer_is_whole(parts: list[bytes | None]) -> None:
    async with raw_server(parts, parts) as (fake, connections):
        assert await asked(fake, connections) == (200, b"ok")
        assert await asked(fake, connections) == (200, b"ok")
    assert len(set(fake.peers)) == 1


@pytest.mark.parametrize(
    "parts",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"],
        [b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"],
        [b"HTTP/1.1 200 OK\r\n\r\nok", None],  # its end is that of the connection
        [OK + OK],
    ],
)
async def test_a_connection_that_may_not_be_used_again_is_closed(parts: list[bytes | None]) -> None:
    async with raw_server(parts, [OK]) as (fake, connections):
        assert await asked(fake, connections) == (200, b"ok")
        assert await asked(fake, connections) == (200, b"ok")
    assert len(set(fake.peers)) == 2


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([b"SSH-2.0-OpenSSH_9.6\r\n"], NotHttp),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n"], NotHttp),
        ([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"], NotHttp),
        ([b"HTTP/1.1 200 OK\r\nx: " + b"y" * 40_000, b"y" * 40_000], NotHttp),
        ([None], ConnectionLost),
        ([b"HTTP/1.1 200 OK\r\nContent-", None], ConnectionLost),
    ],
)
async def test_what_is_no_answer_is_told_apart(parts: list[bytes | None], error: type[UpstreamError]) -> None:
    async with raw_server(parts) as (fake, connections):
        with pytest.raises(error):
            await asked(fake, connections)


@pytest.mark.parametrize(
    "parts",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", None],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", None],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", b"what\r\n"],
    ],
)
async def test_a_cut_answer_gives_what_has_come_and_then_fails(parts: list[bytes | None]) -> None:
    async with raw_server(parts) as (fake, connections):
        answer = await connections.send("127.0.0.1", fake.port, PING)
        assert await answer.read() == b"ab"
        with pytest.raises(UpstreamError):
            await answer.read()


async def test_nobody_listens() -> None:
    async with raw_server() as (fake, connections):
        pass
    with pytest.raises(ConnectFailed):
        await connections.send("127.0.0.1", fake.port, PING)


@pytest.mark.parametrize(("method", "answered"), [("GET", True), ("POST", False)])
async def test_only_a_get_is_sent_again_on_a_connection_that_was_closed(method: str, answered: bool) -> None:
    request = Request(method, "/v1/models", [])
    async with raw_server([OK], [None], [OK]) as (fake, connections):
        await asked(fake, connections, request)
        if answered:
            assert await asked(fake, connections, request) == (200, b"ok")
        else:
            with pytest.raises(ConnectionLost):
                await asked(fake, connections, request)
    assert len(fake.requests) == (3 if answered else 2)


async def test_an_answer_that_is_closed_early_ends_its_connection() -> None:
    async with raw_server([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"]) as (fake, connections):
        answer = await connections.send("127.0.0.1", fake.port, PING)
        answer.close()
        await fake.lost.wait()


async def test_an_answer_that_is_closed_twice_does_not_touch_the_next_one() -> None:
    async with raw_server([OK], [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", b"k"]) as (fake, connections):
        first = await connections.send("127.0.0.1", fake.port, PING)
        assert await first.read() == b"ok"
        first.close()
        second = await connections.send("127.0.0.1", fake.port, PING)
        first.close()
        assert await second.read_at_most(2) == b"ok"
        second.close()
    assert len(set(fake.peers)) == 1


async def test_a_cancelled_request_ends_its_connection() -> None:
    async with raw_server([b"HTTP/1.1 100 Continue\r\n\r\n"]) as (fake, connections):
        asking = asyncio.create_task(connections.send("127.0.0.1", fake.port, PING))
        await fake.asked.wait()
        asking.cancel()
        await asyncio.wait({asking})
        await fake.lost.wait()


async def test_an_engine_waits_for_a_reader_that_takes_nothing() -> None:
    size, part = 64 * 1024 * 1024, b"x" * (1024 * 1024)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode()
    async with raw_server([head, *[part] * 64]) as (fake, connections):
        answer = await connections.send("127.0.0.1", fake.port, PING)
        seen = len(await answer.read())
        while part := await answer.read():
            assert len(part) <= MAX_BUFFERED + 256 * 1024  # one more read of the socket
            seen += len(part)
        answer.close()
    assert seen == size


async def test_a_large_answer_that_arrives_with_its_end_leaves_its_connection_readable() -> None:
    size, loop = MAX_BUFFERED + 1, asyncio.get_running_loop()
    large = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode() + b"x" * size
    async with raw_server([large], [OK]) as (fake, connections):
        took = EngineConnection.data_received
        parts: list[bytes] = []

        def whole(connection: EngineConnection, data: bytes) -> None:
            """As a busy event loop receives it: all at once."""
            parts.append(data)
            if len(b"".join(parts)) >= len(large):
                loop.call_soon(took, connection, b"".join(parts))
                parts.clear()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EngineConnection, "data_received", whole)
            assert await asked(fake, connections) == (200, b"x" * size)
        async with asyncio.timeout(5):
            assert await asked(fake, connections) == (200, b"ok")
    assert len(set(fake.peers)) == 1


@pytest.mark.parametrize("value", ["a\r\nx-two: 2", "a\nb", "a\rb"])
def test_a_header_with_a_line_break_is_not_sent(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        head_of("h", 1, Request("POST", "/", [("x-one", value)]))


def test_the_head_is_that_of_http() -> None:
    assert head_of("[::1]", 80, PING) == (
        b"POST /v1/completions HTTP/1.1\r\nHost: [::1]:80\r\nx-one: 1\r\nContent-Length: 2\r\n\r\n"
    )


def idle(connections: Connections) -> int:
    return sum(len(each) for each in connections._free.values())


async def test_idle_connections_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = asyncio.get_running_loop().time
    skew = [0.0]
    async with raw_server([OK], [OK]) as (fake, connections), raw_server([OK]) as (other, _):
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now() + skew[0])
        await asked(fake, connections)
        assert idle(connections) == 1
        skew[0] = 16.0
        await asked(other, connections)
        assert idle(connections) == 1  # of the other engine
        await fake.lost.wait()
