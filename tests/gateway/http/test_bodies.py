"""Bodies that a gateway refuses over a socket, in any framing, and that are no harm to the requests beside them."""

import asyncio
import json
import logging
import socket

import aiohttp
import pytest

from sluice_gateway.server import Gateway
from tests.engine.server.transport.test_costly_bodies import TURN_SECONDS, LongestTurn
from tests.gateway.engines import CHAT, FakeEngine, gateway_over
from tests.gateway.test_fleet import chat
from tests.gateway.test_wire import raw

TYPE = {"Content-Type": "application/json"}


async def posted(gateway: Gateway, body: bytes, **headers: str) -> tuple[int, dict[str, object], str]:
    """Status, error object and Retry-After of this body."""
    async with (
        aiohttp.ClientSession() as client,
        client.post(gateway.url + CHAT, data=body, headers=TYPE | headers) as response,
    ):
        return response.status, (await response.json()).get("error", {}), response.headers.get("Retry-After", "")


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b'"x"', b"null", b"5", b"true", b"[]", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b'{"a": "\xc3"}',
        b'{"a": NaN}', b'{"a": Infinity}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": "\\ud800"}', b'{"model": "chat", "a": 1} {}', b"\xef\xbb\xbf{}", b'{"model": ["chat"]}', b'{"model": {}}',
        b'{"a": "\x00"}', b"{'a': 1}", b'{"a": 1,}',
    ],
    ids=range(25),
)  # fmt: skip
async def test_a_body_that_is_no_strict_json_object_is_a_400_that_repeats_none_of_it(body: bytes) -> None:
    engine = FakeEngine("r0")
    async with gateway_over(engine) as gateway:
        status, error, _ = await posted(gateway, body)
        assert (status, error["type"]) == (400, "invalid_request_error")
        assert len(str(error["message"])) < 300
        assert (await posted(gateway, json.dumps(chat("a")).encode()))[0] == 200
    assert len(engine.seen) == 1


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity", "gzip, gzip"])
async def test_a_coded_body_is_a_415_and_is_not_decoded(coding: str) -> None:
    engine = FakeEngine("r0")
    async with gateway_over(engine) as gateway:
        status, error, _ = await posted(gateway, b"\x1f\x8b broken", **{"Content-Encoding": coding})
        assert (status, error["param"]) == (415, None)
    assert engine.seen == []


@pytest.mark.parametrize("name", ["../../etc", "x" * 10_000, "\u202echat\r\nlevel=error", "chat "])
async def test_an_unknown_model_is_a_404_and_not_in_the_log(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with gateway_over(FakeEngine("r0")) as gateway:
        status, error, _ = await posted(gateway, json.dumps(chat("a", model=name)).encode())
        assert (status, error["code"], error["message"]) == (
            404,
            "model_not_found",
            "The model does not exist; there is chat.",
        )
    assert caplog.records
    assert not [record for record in caplog.records if name in record.getMessage() or name in str(record.__dict__)]


async def test_a_body_in_a_hundred_thousand_chunks_of_one_byte_is_read_and_never_holds_the_event_loop() -> None:
    body = json.dumps(chat(" " * 100_000)).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body).decode() + "0\r\n\r\n"
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    )
    engine = FakeEngine("r0")
    async with gateway_over(engine) as gateway:
        turns = LongestTurn()
        # by a thread: the client's work is no turn of the gateway's event loop
        answer = await asyncio.to_thread(exchanged, gateway.url, head + "Connection: close\r\n\r\n" + chunks)
        turns.stop()
    assert answer.startswith(b"HTTP/1.1 200 ")  # within the deadline of a body, else 408
    assert turns.seconds < TURN_SECONDS
    assert engine.seen[0].headers["Content-Length"] == str(len(body))


def exchanged(url: str, request: str) -> bytes:
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=120) as connection:
        connection.sendall(request.encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


async def test_a_request_that_raises_in_the_gateway_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine("r0")
    async with gateway_over(engine) as gateway:
        with monkeypatch.context() as patch:
            patch.setattr("sluice_gateway.forwarding.proxy.prefix_hashes", lambda *_, **__: 1 // 0)
            status, error, _ = await posted(gateway, json.dumps(chat("a")).encode(), **{"x-request-id": "abc-1"})
        assert (status, error["code"]) == (500, "internal_error")
        assert "abc-1" in str(error["message"])
        assert "division" not in str(error)
        assert (await posted(gateway, json.dumps(chat("a")).encode()))[0] == 200
        assert gateway.in_flight == 0
        assert gateway.body_bytes == 0
    assert len(engine.seen) == 1


@pytest.mark.parametrize("sent", ["", f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"])
async def test_a_byte_now_and_then_does_not_extend_the_deadline(sent: str) -> None:
    rest = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n" if not sent else "Content-Length: 1000\r\n\r\n" + "{" * 900
    async with gateway_over(FakeEngine("r0"), body_seconds=0.3) as gateway:
        reader, writer = await raw(gateway.url, sent)
        answer = asyncio.create_task(reader.readuntil(b" 408 "))  # not to the end, which a reset for a late byte may be
        for character in rest:
            writer.write(character.encode())
            done, _ = await asyncio.wait({answer}, timeout=0.05)
            if done:
                break
        async with asyncio.timeout(60):
            assert await answer == b"HTTP/1.1 408 "
        writer.close()
        assert gateway.in_flight == 0


async def test_a_client_that_leaves_before_the_first_token_frees_its_replica() -> None:
    arrived, cancelled = asyncio.Event(), asyncio.Event()

    async def silent(_: aiohttp.web.Request) -> aiohttp.web.Response:
        arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with gateway_over(FakeEngine("r0", answer=silent)) as gateway:
        body = json.dumps(chat("a"))
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        _, writer = await raw(gateway.url, f"{head}Content-Length: {len(body)}\r\n\r\n{body}")
        async with asyncio.timeout(60):
            await arrived.wait()
            writer.close()
            await cancelled.wait()
            await gateway.idle()
        assert [state.in_flight for state in gateway.fleet.states()] == [0]
