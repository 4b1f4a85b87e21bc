"""What a gateway refuses itself, over real sockets: framing, headers, sizes, bodies, in the format of the path's API."""

import asyncio
import io
import json
import logging

import aiohttp
import pytest

from sluice.httpapi.connection_limits import ConnectionLimits
from sluice_gateway.server import Gateway
from tests.gateway.engines import CHAT, FakeEngine, gateway_over
from tests.gateway.test_fleet import chat, metric
from tests.gateway.test_wire import MESSAGES, raw

HEAD = f"POST {CHAT} HTTP/1.1\r\n"
HOST = "Host: localhost\r\n"
TYPE = "Content-Type: application/json\r\n"


async def status_and_body(gateway: Gateway, request: str) -> tuple[int, dict[str, object]]:
    """The answer to these bytes, which ends the connection or has a length."""
    reader, writer = await raw(gateway.url, request)
    async with asyncio.timeout(60):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lengths = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
        body = await reader.readexactly(int(lengths[0].partition(":")[2]))
    writer.close()
    assert "application/json" in head
    assert "\r\nServer: sluice\r\n" in head or " 200 " in head  # an engine's answer has its own
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (f"{HEAD}{HOST}x: {'a' * 9000}\r\n\r\n", 400),
        (f"{HEAD}{HOST}{''.join(f'x{n}: 1' + chr(13) + chr(10) for n in range(200))}\r\n", 400),
        (f"POST /{'a' * 10_000} HTTP/1.1\r\n{HOST}\r\n", 400),
        (f"{HEAD}{HOST}{TYPE}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (f"{HEAD}{HOST}{TYPE}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}", 400),
        (f"{HEAD}{HOST}{TYPE}Content-Length: -2\r\n\r\n", 400),
        ("\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (f"{HEAD}{TYPE}Content-Length: 2\r\n\r\n{{}}", 400),
        (f"{HEAD}Host: a/b?c\r\n{TYPE}Content-Length: 2\r\n\r\n{{}}", 400),
        (f"{HEAD}{HOST}{HOST}{TYPE}Content-Length: 2\r\n\r\n{{}}", 400),
        (f"{HEAD}{HOST}{TYPE}Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{{}}", 415),
        (f"{HEAD}{HOST}{TYPE}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n", 400),
        (f"{HEAD}{HOST}Content-Length: 2\r\n\r\n{{}}", 415),
        (f"{HEAD}{HOST}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}", 415),
        (f"{HEAD}{HOST}{TYPE}Content-Length: 0\r\n\r\n", 400),
        (f"{HEAD}{HOST}{TYPE}Content-Length: 2\r\n\r\n[]", 400),
        (f'{HEAD}{HOST}{TYPE}Content-Length: 11\r\n\r\n{{"model":5}}', 400),
        (f'{HEAD}{HOST}{TYPE}Content-Length: 9\r\n\r\n{{"a":NaN}}', 400),
        (f"{HEAD}{HOST}{TYPE}Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (f"GET {CHAT} HTTP/1.1\r\n{HOST}\r\n", 405),
        (f"GET //v1/models HTTP/1.1\r\n{HOST}\r\n", 404),
        (f"GET /v1/models/ HTTP/1.1\r\n{HOST}\r\n", 404),
        (f"GET /%2e%2e/v1/models HTTP/1.1\r\n{HOST}\r\n", 404),
        (f"POST {CHAT}/ HTTP/1.1\r\n{HOST}{TYPE}Content-Length: 2\r\n\r\n{{}}", 404),
    ],
    ids=range(24),
)
async def test_each_bad_request_gets_its_status_and_no_engine_sees_it(request_bytes: str, status: int) -> None:
    engine = FakeEngine("r0")
    async with gateway_over(engine) as gateway:
        found, body = await status_and_body(gateway, request_bytes)
        assert found == status
        assert set(body["error"]) == {"message", "type", "param", "code"}  # type: ignore[call-overload]
        async with aiohttp.ClientSession() as client, client.post(gateway.url + CHAT, json=chat("a")) as response:
            assert response.status == 200  # others are not affected
    assert len(engine.seen) == 1


@pytest.mark.parametrize(
    ("head", "status", "kind"),
    [
        (f"POST {MESSAGES} HTTP/1.1\r\n{HOST}Content-Length: 2\r\n\r\n{{}}", 415, "api_error"),
        (f"POST {MESSAGES} HTTP/1.1\r\n{HOST}{TYPE}Content-Length: 2\r\n\r\n[]", 400, "invalid_request_error"),
        (f"GET {MESSAGES} HTTP/1.1\r\n{HOST}\r\n", 405, "api_error"),
        (f'POST {MESSAGES} HTTP/1.1\r\n{HOST}{TYPE}Content-Length: 13\r\n\r\n{{"model":"x"}}', 404, "not_found_error"),
    ],
)
async def test_errors_on_anthropics_paths_have_anthropics_format(head: str, status: int, kind: str) -> None:
    async with gateway_over(FakeEngine("r0")) as gateway:
        found, body = await status_and_body(gateway, head)
    assert (found, body["type"], body["error"]["type"]) == (status, "error", kind)  # type: ignore[index]


async def test_no_replica_on_an_anthropic_path_is_an_overload_in_anthropics_format() -> None:
    async with (
        gateway_over() as gateway,
        aiohttp.ClientSession() as client,
        client.post(gateway.url + MESSAGES, json=chat("a")) as response,
    ):
        body = await response.json()
    assert (response.status, body["error"]["type"]) == (503, "overloaded_error")
    assert int(response.headers["Retry-After"]) >= 1


async def test_headers_that_do_not_arrive_are_a_408() -> None:
    async with gateway_over(FakeEngine("r0"), body_seconds=0.1, admin_port=0) as gateway:
        assert (await status_and_body(gateway, HEAD + "Ho"))[0] == 408
        assert await metric(gateway, 'sluice_gateway_rejections_total{reason="headers_overdue"} 1.0')


async def test_what_the_gateway_rejects_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with gateway_over(FakeEngine("r0"), admin_port=0) as gateway:
        limits: ConnectionLimits = gateway._limits
        for _ in range(2):
            await status_and_body(gateway, f"{HEAD}{HOST}x: {'a' * 9000}\r\n\r\n")
        limits.max_connections = 0
        found, _ = await status_and_body(gateway, f"{HEAD}{HOST}{TYPE}Content-Length: 2\r\n\r\n{{}}")
        assert found == 503
        limits.max_connections = 100
        limits.body_budget._small.max_bytes = 10
        found, body = await status_and_body(gateway, f'{HEAD}{HOST}{TYPE}Content-Length: 12\r\n\r\n{{"model":"a"')
        assert (found, body["error"]["code"]) == (503, "bodies_full")  # type: ignore[index]
        for reason, count in (("malformed", 2), ("connections_full", 1), ("bodies_full", 1)):
            assert await metric(gateway, f'sluice_gateway_rejections_total{{reason="{reason}"}} {count}.0')
    assert [line for line in caplog.messages if "(malformed)" in line] == [
        "rejected before they were read: 1 (malformed)"
    ]
    assert any("bodies_full" in line for line in caplog.messages)


async def test_what_is_known_of_a_prompt_is_bounded_whatever_its_length() -> None:
    body = io.BytesIO(json.dumps({"model": "chat", "prompt": list(range(1_000_000))}).encode())
    async with (
        gateway_over(FakeEngine("r0")) as gateway,
        aiohttp.ClientSession() as client,
        client.post(
            gateway.url + "/v1/completions", data=body, headers={"Content-Type": "application/json"}
        ) as response,
    ):
        assert response.status == 200
        assert 1000 < len(gateway.fleet.caches) <= 4096
