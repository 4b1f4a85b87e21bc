"""The gateway against real upstream servers."""

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sluice import contract
from sluice_gateway.holding import HoldQueue
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.server import Gateway, GatewayOptions, PortTaken

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CHAT = "/v1/chat/completions"
JSON = {"Content-Type": "application/json"}


@asynccontextmanager
async def upstream(name: str, handler: Handler) -> AsyncIterator[Backend]:
    """A replica that answers every POST by `handler`."""
    app = web.Application()
    app.router.add_post("/v1/{path:.+}", handler)
    app.router.add_get("/{path:.+}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Backend(name, "127.0.0.1", runner.addresses[0][1])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def gateway_of(
    *handlers: Handler, hold_queue: HoldQueue | None = None, **options: Any
) -> AsyncIterator[tuple[Gateway, list[Backend]]]:
    """A gateway over one replica per handler."""
    async with AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(upstream(f"r{n}", one)) for n, one in enumerate(handlers)]
        gateway = await stack.enter_async_context(
            Gateway(lambda: backends, GatewayOptions(port=0, **options), hold_queue)
        )
        yield gateway, backends


def says(text: str) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({"says": text}, headers={"x-request-id": request.headers.get("x-request-id", "none")})

    return handler


async def full(request: web.Request) -> web.Response:
    return web.json_response(
        {"error": {"message": "full", "type": "service_unavailable", "param": None, "code": "queue_full"}},
        status=503,
        headers={"Retry-After": "7"},
    )


async def test_every_inference_path_has_a_route() -> None:
    async with gateway_of(says("a")) as (gateway, _), aiohttp.ClientSession() as client:
        for path in ("chat/completions", "completions", "embeddings", "rerank", "score"):
            async with client.post(f"{gateway.url}/v1/{path}", json={}) as response:
                assert (await response.json())["says"] == "a"


async def test_every_path_that_is_read_has_a_route() -> None:
    async with gateway_of(says("a")) as (gateway, _), aiohttp.ClientSession() as client:
        for path in (*contract.READ_PATHS, "/v1/models/chat", "/v1/models/Qwen/Qwen3-8B"):
            async with client.get(gateway.url + path) as response:
                assert (response.status, await response.json()) == (200, {"says": "a"})
        async with client.get(gateway.url + "/metrics") as response:
            assert response.status == 404


async def test_health_without_a_replica_is_503() -> None:
    async with (
        gateway_of() as (gateway, _),
        aiohttp.ClientSession() as client,
        client.get(gateway.url + contract.PATH_HEALTH) as response,
    ):
        assert response.status == 503


async def test_requests_go_round_and_identifiers_pass_through() -> None:
    async with gateway_of(says("a"), says("b")) as (gateway, _), aiohttp.ClientSession() as client:
        answers = []
        for n in range(4):
            async with client.post(gateway.url + CHAT, json={}, headers={"x-request-id": f"id-{n}"}) as response:
                assert response.headers["x-request-id"] == f"id-{n}"
                answers.append((await response.json())["says"])
    assert sorted(answers) == ["a", "a", "b", "b"]
    assert answers[0] != answers[1]


async def test_a_stream_passes_chunk_by_chunk() -> None:
    read_first = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await read_first.wait()  # the second is written only after the client has the first
        await response.write(b"data: [DONE]\n\n")
        return response

    async with (
        gateway_of(handler) as (gateway, _),
        aiohttp.ClientSession() as client,
        client.post(gateway.url + CHAT, json={}) as response,
    ):
        assert response.content_type == "text/event-stream"
        assert await response.content.readany() == b"data: 1\n\n"
        read_first.set()
        assert await response.content.read() == b"data: [DONE]\n\n"


async def test_a_rejected_request_is_sent_to_the_next_replica() -> None:
    async with gateway_of(full, says("b")) as (gateway, _), aiohttp.ClientSession() as client:
        for _ in range(4):
            async with client.post(gateway.url + CHAT, json={}) as response:
                assert (response.status, (await response.json())["says"]) == (200, "b")


def notes(seen: list[str | None], then: Handler) -> Handler:
    """As `then`, after writing down which try it is."""

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("x-sluice-attempt"))
        return await then(request)

    return handler


async def test_a_retried_request_carries_its_attempt_number() -> None:
    seen: list[str | None] = []
    engines = [notes(seen, one) for one in (full, full, says("c"))]
    async with (
        gateway_of(*engines) as (gateway, _),
        aiohttp.ClientSession() as client,
        client.post(gateway.url + CHAT, json={}, headers={"X-Sluice-Attempt": "7"}) as response,
    ):
        assert response.status == 200
    assert seen == [None, "2", "3"]  # a client cannot say it itself


async def test_a_refused_connection_does_not_count_as_an_attempt() -> None:
    seen: list[str | None] = []
    async with gateway_of(notes(seen, says("b"))) as (gateway, backends), aiohttp.ClientSession() as client:
        backends.insert(0, Backend("gone", "127.0.0.1", 1))
        for _ in range(2):
            async with client.post(gateway.url + CHAT, json={}) as response:
                assert response.status == 200
    assert seen == [None, None]


async def test_the_last_rejection_is_forwarded_when_all_replicas_are_full() -> None:
    async with (
        gateway_of(full, full) as (gateway, _),
        aiohttp.ClientSession() as client,
        client.post(gateway.url + CHAT, json={}) as response,
    ):
        assert response.status == 503
        assert response.headers["Retry-After"] == "7"
        assert (await response.json())["error"]["code"] == "queue_full"


async def test_a_replica_that_does_not_listen_is_skipped() -> None:
    async with gateway_of(says("b")) as (gateway, backends), aiohttp.ClientSession() as client:
        backends.insert(0, Backend("gone", "127.0.0.1", 1))
        for _ in range(2):
            async with client.post(gateway.url + CHAT, json={}) as response:
                assert response.status == 200


async def test_no_ready_replica_is_a_503_with_retry_after() -> None:
    async with (
        gateway_of() as (gateway, _),
        aiohttp.ClientSession() as client,
        client.post(gateway.url + CHAT, json={}) as response,
    ):
        assert response.status == 503
        assert int(response.headers["Retry-After"]) >= 1
        error = (await response.json())["error"]
        assert set(error) == {"message", "type", "param", "code"}


async def test_a_client_disconnect_cancels_the_upstream_request() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return response

    async with gateway_of(handler) as (gateway, _), aiohttp.ClientSession() as client:
        response = await client.post(gateway.url + CHAT, json={})
        await begun.wait()
        response.close()
        async with asyncio.timeout(60):
            await cancelled.wait()
            await gateway.idle()
        assert gateway.in_flight == 0


async def test_a_replica_that_dies_mid_stream_ends_it_with_an_error_event() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with (
        gateway_of(handler) as (gateway, _),
        aiohttp.ClientSession() as client,
        client.post(gateway.url + CHAT, json={}) as response,
    ):
        body = (await response.read()).decode()
    events = [line.removeprefix("data: ") for line in body.split("\n\n") if line]
    assert "[DONE]" not in events
    assert json.loads(events[-1])["error"]["type"] == "server_error"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics", 404),
        ("PATCH", "/limits", 404),
        ("POST", "/v1/chat/completions/", 404),
        ("GET", CHAT, 405),
    ],
)
async def test_other_paths_and_methods_are_refused_in_json(method: str, path: str, status: int) -> None:
    async with (
        gateway_of(says("a")) as (gateway, _),
        aiohttp.ClientSession() as client,
        client.request(method, gateway.url + path) as response,
    ):
        assert response.status == status
        assert "message" in (await response.json())["error"]


async def test_a_name_of_another_machine_is_refused() -> None:
    async with gateway_of(says("a")) as (gateway, _), aiohttp.ClientSession() as client:
        async with client.get(gateway.url + "/v1/models", headers={"Host": "evil.example:8080"}) as response:
            assert response.status == 400
        async with client.get(gateway.url + "/v1/models", headers={"Host": "localhost:8080"}) as response:
            assert response.status == 200


async def test_a_body_over_the_limit_is_refused() -> None:
    async with gateway_of(says("a")) as (gateway, _), aiohttp.ClientSession() as client:
        with contextlib.suppress(aiohttp.ClientConnectionError):  # it may still be sending when the answer comes
            async with client.post(
                gateway.url + CHAT, data=io.BytesIO(b"x" * (8 * 1024 * 1024 + 1)), headers=JSON
            ) as response:
                assert response.status == 413


async def test_a_body_that_does_not_arrive_in_time_is_rejected() -> None:
    async with gateway_of(says("a"), body_seconds=0.1) as (gateway, _):
        port = int(gateway.url.rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\nabc".encode()
        )
        async with asyncio.timeout(60):
            assert b" 408 " in await reader.readline()
        writer.close()


async def test_a_draining_gateway_rejects_only_new_requests() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        begun.set()
        await release.wait()
        return web.json_response({"says": "late"})

    async with gateway_of(slow) as (gateway, _), aiohttp.ClientSession() as client:
        first = asyncio.create_task(client.post(gateway.url + CHAT, json={}))
        await begun.wait()
        gateway.drain()
        async with client.post(gateway.url + CHAT, json={}) as response:
            assert response.status == 503
        release.set()
        async with await first as response:
            assert response.status == 200


async def test_a_taken_port_is_named() -> None:
    async with gateway_of(says("a")) as (gateway, _):
        port = int(gateway.url.rsplit(":", 1)[1])
        with pytest.raises(PortTaken, match=str(port)):
            await Gateway(_nobody, GatewayOptions(port=port)).start()


def _nobody() -> Sequence[Backend]:
    return ()


def test_the_gateway_imports_neither_operator_nor_engine() -> None:
    import sluice_gateway

    folder = Path(sluice_gateway.__file__).parent
    for file in folder.rglob("*.py"):
        text = file.read_text()
        assert "sluice_operator" not in text
        assert "sluice_engine" not in text
