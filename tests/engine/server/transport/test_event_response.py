"""The bytes of an event response, read from a real socket by what the HTTP standard says of them."""

import asyncio

import pytest
from aiohttp import web

from sluice.httpapi.event_response import EventResponse


async def answer_to(request: bytes, *, close: bool = False, header: str = "of the first event") -> bytes:
    """All that a server sends up to the end of the connection: per request two writes of an event response, and its end."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = EventResponse(request, {"Content-Type": "text/event-stream"})
        if close:
            response.force_close()
        response.begin()
        response.add_headers({"X-Late": header})
        await response.write(b"data: 1\n\n")
        await response.write_eof(b"data: 22\n\n")
        return response

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        reader, writer = await asyncio.open_connection(*runner.addresses[0])
        writer.write(request)
        received = await reader.read()
        writer.close()
        return received
    finally:
        await runner.cleanup()


def fields_of(head: bytes) -> dict[str, str]:
    lines = head.decode().split("\r\n")[1:]
    return dict(line.split(": ", 1) for line in lines)


async def test_a_client_of_http_1_1_gets_chunks_and_keeps_its_connection() -> None:
    one = b"POST / HTTP/1.1\r\nHost: a\r\n\r\n"
    last = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    head, _, rest = (await answer_to(one + last)).partition(b"\r\n\r\n")
    fields = fields_of(head)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert fields.pop("Date").endswith(" GMT")
    assert fields == {
        "Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", "X-Late": "of the first event",
    }  # fmt: skip
    body = b"9\r\ndata: 1\n\n\r\na\r\ndata: 22\n\n\r\n0\r\n\r\n"
    assert rest.startswith(body)
    assert rest[len(body) :].endswith(b"\r\n\r\n" + body)


async def test_a_client_of_http_1_0_gets_the_body_up_to_the_end_of_the_connection() -> None:
    head, _, body = (await answer_to(b"POST / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")).partition(b"\r\n\r\n")
    fields = fields_of(head)
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert fields["Connection"] == "close"
    assert "Transfer-Encoding" not in fields
    assert body == b"data: 1\n\ndata: 22\n\n"


ONE = b"POST / HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(("sent", "close"), [(ONE + b"Connection: close\r\n\r\n", False), (2 * (ONE + b"\r\n"), True)])
async def test_a_connection_that_client_or_server_closes_ends_with_the_response(sent: bytes, close: bool) -> None:
    received = await answer_to(sent, close=close)
    assert received.count(b"HTTP/1.1 200 OK") == 1
    assert b"\r\nConnection: close\r\n" in received


async def test_a_header_with_a_line_end_is_refused_before_anything_is_sent() -> None:
    asked = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    received = await answer_to(asked, header="a\r\nX-Injected: 1")
    assert received.startswith(b"HTTP/1.1 500 ")
    assert b"Injected" not in received
