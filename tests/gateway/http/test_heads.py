"""Request lines and headers over a socket: what is refused before a route is chosen, and what is replaced."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from sluice_gateway.keys.gatekeeper import KeyOptions
from tests.engine.server.auth.keys import entry, key_file
from tests.gateway.engines import CHAT, FakeEngine, gateway_over
from tests.gateway.test_bad_input import HOST, TYPE, status_and_body
from tests.gateway.test_fleet import chat
from tests.gateway.test_wire import raw

SENT = f"{TYPE}Content-Length: 2\r\n\r\n{{}}"


@pytest.mark.parametrize(
    "head",
    [
        f"POST {CHAT} HTTP/1.1\r\n{HOST}{TYPE}Content-Length: +2\r\n\r\n{{}}",
        f"POST {CHAT} HTTP/1.1\r\n{HOST}{TYPE}Content-Length: 2 2\r\n\r\n{{}}",
        f"POST {CHAT} HTTP/1.1\r\n{HOST}{TYPE}Content-Length: 99999999999999999999999\r\n\r\n{{}}",
        f"POST {CHAT} HTTP/1.1\r\n{HOST}{TYPE}Transfer-Encoding: gzip\r\n\r\n{{}}",
        f"POST {CHAT} HTTP/1.1\r\n{HOST}{TYPE}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        f"POST {CHAT} HTTP/1.1\r\n{HOST}{TYPE}Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        f"POST {CHAT} HTTP/1.1\r\n{HOST}{TYPE}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n",
        f"POST {CHAT} HTTP/1.1\r\n{HOST} x-folded: 1\r\n\t2\r\n{SENT}",
        f"POST {CHAT} HTTP/1.1\r\n{HOST}x-nul: a\x00b\r\n{SENT}",
        f"POST {CHAT} HTTP/1.1\r\n{HOST}no colon\r\n{SENT}",
        f"POST {CHAT} HTTP/9.9\r\n{HOST}{SENT}",
        f"POST {CHAT}\r\n{HOST}{SENT}",
        f"POST {CHAT} HTTP/1.1\r\nHost: \r\n{SENT}",
        f"POST {CHAT} HTTP/1.1\r\nHost: user@localhost\r\n{SENT}",
        "nonsense\r\n\r\n",
    ],
    ids=range(15),
)
async def test_a_malformed_head_is_a_400_in_openais_shape(head: str) -> None:
    engine = FakeEngine("r0")
    async with gateway_over(engine) as gateway:
        status, body = await status_and_body(gateway, head)
        assert status == 400
        assert set(body["error"]) == {"message", "type", "param", "code"}  # type: ignore[call-overload]
    assert engine.seen == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/%6dodels", 404),
        ("GET", "/v1/models/../../limits", 404),
        ("GET", "/v1/../metrics", 404),
        ("POST", CHAT + "?a=../..", 200),
        ("POST", CHAT + "%00", 404),
        ("POST", CHAT + ";a=1", 404),
        ("DELETE", "/v1/models", 405),
        ("OPTIONS", "*", 404),
        ("PATCH", "/limits", 404),
        ("GET", "/load", 404),
        ("GET", "/kv_events", 404),
    ],
)
async def test_only_the_inference_paths_as_they_are_written_have_a_route(method: str, path: str, status: int) -> None:
    engine = FakeEngine("r0")
    async with gateway_over(engine) as gateway:
        found, body = await status_and_body(gateway, f"{method} {path} HTTP/1.1\r\n{HOST}{SENT}")
    assert found == status
    assert status == 200 or body["error"]


@pytest.mark.parametrize("given", ["x" * 5000, "x" * 129, "two words", "sémantique", "a;b", "a\tb", ""])
async def test_an_unsuitable_request_id_is_replaced_on_both_ways(given: str) -> None:
    engine = FakeEngine("r0")
    async with gateway_over(engine) as gateway:
        reader, writer = await raw(
            gateway.url, f"POST {CHAT} HTTP/1.1\r\n{HOST}x-request-id: {given}\r\nConnection: close\r\n{SENT}"
        )
        async with asyncio.timeout(60):
            answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(engine.seen[0].headers["x-request-id"]) == 32
    assert not given or given.encode() not in answer


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "Authorization: Bearer wrong\r\n",
        "Authorization: Bearer key-of-a\r\nAuthorization: Bearer key-of-a\r\n",
        "Authorization: Bearer k\xe9y\r\n",
        "Authorization: Bearer \r\n",
        "Authorization: Basic key-of-a\r\n",
        "api-key: key-of-a\r\n",
    ],
    ids=range(7),
)
@pytest.mark.parametrize("query", ["", "?api_key=key-of-a&key=key-of-a"])
async def test_without_exactly_one_right_key_in_its_header_a_request_is_a_401(
    lines: str, query: str, tmp_path: Path
) -> None:
    (tmp_path / "keys.yaml").write_bytes(key_file(entry("a")))
    engine = FakeEngine("r0")
    async with gateway_over(engine, keys=KeyOptions(tmp_path / "keys.yaml")) as gateway:
        status, body = await status_and_body(gateway, f"POST {CHAT}{query} HTTP/1.1\r\n{HOST}{lines}{SENT}")
        assert (status, body["error"]["code"]) == (401, "invalid_api_key")  # type: ignore[index]
        for path in ("/v1/models", "/v1/models/chat"):
            assert (await status_and_body(gateway, f"GET {path}{query} HTTP/1.1\r\n{HOST}{lines}\r\n"))[0] == 401
    assert engine.seen == []


async def test_an_answer_that_leads_elsewhere_is_not_followed() -> None:
    asked: list[str] = []

    async def elsewhere(request: aiohttp.web.Request) -> aiohttp.web.Response:
        asked.append(request.path)
        return aiohttp.web.json_response({})

    engine, good = FakeEngine("r0"), FakeEngine("r1")
    other = aiohttp.web.Application()
    other.router.add_get("/{path:.*}", elsewhere)
    runner = aiohttp.web.AppRunner(other)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with gateway_over(engine, good, policy="RoundRobin") as gateway:
            engine.leads_to = f"http://127.0.0.1:{runner.addresses[0][1]}/secret"
            await gateway.scraper.scrape()
            async with aiohttp.ClientSession() as client:
                for _ in range(3):
                    async with client.post(gateway.url + CHAT, json=chat("a")) as response:
                        assert (await response.json())["from"] == "r1"
    finally:
        await runner.cleanup()
    assert asked == []
