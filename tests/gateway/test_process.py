"""`sluice gateway` as a process, and its drain."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest
from aiohttp import web
from typer.testing import CliRunner

from sluice import contract
from sluice.cli import app
from sluice_gateway.arguments import Arguments, parse
from sluice_gateway.process import DrainTimes, drain
from sluice_gateway.replicas.static import BadBackend, parse_backend
from tests.gateway.engines import CHAT, FakeEngine, gateway_over, load_document, queued


def test_a_backend_has_a_data_and_an_admin_address() -> None:
    found = parse_backend("http://10.0.0.7:8000")
    assert (found.url, found.admin_url, found.name) == ("http://10.0.0.7:8000", "http://10.0.0.7:8001", "10.0.0.7:8000")
    assert parse_backend("http://[::1]:80,http://a:81").admin_url == "http://a:81"
    assert parse_backend("http://[::1]:80").url == "http://[::1]:80"


@pytest.mark.parametrize(
    "text", ["", "chat:8000", "https://a:1", "http://a", "http://a:x", "http://a:1/v1", "http://a:1,b"]
)
def test_a_wrong_backend_is_told_what_is_expected(text: str) -> None:
    with pytest.raises(BadBackend, match="write http://HOST:PORT"):
        parse_backend(text)
    assert CliRunner().invoke(app, ["gateway", "--backend", text]).exit_code == 2


async def test_a_drain_waits_for_requests_in_flight_and_no_longer_than_its_budget() -> None:
    release, arrived = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        arrived.set()
        await release.wait()
        return web.json_response({"from": "r0"})

    async with gateway_over(FakeEngine("r0", answer=slow)) as gateway, aiohttp.ClientSession() as client:
        asked = asyncio.create_task(client.post(gateway.url + CHAT, json={}))
        await arrived.wait()
        await drain(gateway, asyncio.Queue(), DrainTimes(0.0, 0.0))  # the budget is spent
        again: asyncio.Queue[None] = asyncio.Queue()
        again.put_nowait(None)
        await drain(gateway, again, DrainTimes(3600.0, 3600.0))  # a second signal
        draining = asyncio.create_task(drain(gateway, asyncio.Queue(), DrainTimes(0.0, 3600.0)))
        release.set()
        await draining
        async with await asked as response:
            assert response.status == 200


@asynccontextmanager
async def command(engine: FakeEngine, *options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str, str]]:
    """`sluice gateway` over one engine, as a process, and the URLs of its two ports: of clients, and admin."""
    await engine.start()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sluice", "gateway", "--backend", f"{engine.backend.url},{engine.backend.admin_url}",
        "--port", "0", "--admin-port", "0", "--grace-seconds", "0", "--log-format", "json", *options,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = json.loads(await process.stderr.readline())
        url, admin_url = re.findall(r"http://[^\s,]+", line["message"])
        yield process, url, admin_url
    finally:
        if process.returncode is None:
            process.kill()
        await engine.stop()


async def logged(process: asyncio.subprocess.Process) -> list[dict[str, object]]:
    assert process.stderr is not None
    return [json.loads(line) for line in (await process.stderr.read()).splitlines()]


async def test_sigterm_ends_the_command_with_zero_after_its_requests() -> None:
    release, arrived = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        arrived.set()
        await release.wait()
        return web.json_response({"from": "r0"})

    engine = FakeEngine("r0", answer=slow)
    async with command(engine) as (process, url, _), aiohttp.ClientSession() as client:
        asked = asyncio.create_task(client.post(url + CHAT, json={"model": "chat"}))
        await arrived.wait()
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        await process.stderr.readline()
        release.set()
        async with await asked as response:
            assert (response.status, await response.json()) == (200, {"from": "r0"})
        rest = await logged(process)
        assert await process.wait() == 0
    assert [one["way"] for one in rest if "way" in one] == [[f"{engine.backend.host}:{engine.backend.port}"]]


@pytest.mark.parametrize("ends_by", ["its budget", "a second signal"])
async def test_what_a_drain_cuts_off_is_told_so_and_the_exit_code_tells_it(ends_by: str) -> None:
    arrived = asyncio.Semaphore(0)

    async def endless(request: web.Request) -> web.StreamResponse:
        kind = (await request.json())["user"]
        response = web.StreamResponse(headers={} if kind != "stream" else {"Content-Type": "text/event-stream"})
        if kind != "silent":
            await response.prepare(request)
            await response.write(b"data: 1\n\ndata: 2")  # cut in the middle of an event
        arrived.release()
        await asyncio.Event().wait()
        return response

    budget = "0.2" if ends_by == "its budget" else "3600"
    engine = FakeEngine("r0", load_document(limit=3), endless)
    async with (
        command(engine, "--drain-seconds", budget) as (process, url, admin_url),
        aiohttp.ClientSession(url) as client,
    ):
        asked = [asyncio.create_task(client.post(CHAT, json={"user": kind})) for kind in ("stream", "silent", "file")]
        for _ in asked:
            await arrived.acquire()
        asked.append(asyncio.create_task(client.post(CHAT, json={"user": "queued"})))
        await queued(admin_url, 1)
        stream, file = await asked[0], await asked[2]
        assert await stream.content.readuntil(b"2") == b"data: 1\n\ndata: 2"
        process.send_signal(signal.SIGTERM)
        if ends_by == "a second signal":
            assert process.stderr is not None
            await process.stderr.readline()
            process.send_signal(signal.SIGTERM)
        before, event = (await stream.read()).split(b"data: ")
        error = json.loads(event)["error"]
        assert (before, error["type"], error["code"]) == (b"\n\n", "service_unavailable", "draining")
        with pytest.raises(aiohttp.ClientPayloadError):  # a clean end would make it look complete
            await file.read()
        for each in (asked[1], asked[3]):
            async with await each as response:
                assert (response.status, response.headers["Retry-After"]) == (503, "1")
                assert (await response.json())["error"]["code"] == "draining"
        rest = await logged(process)
        assert await process.wait() == contract.EXIT_FAILED
    assert [one["error"] for one in rest if "way" in one] == ["draining"] * 4


async def test_a_client_that_does_not_read_does_not_prolong_a_drain() -> None:
    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(b"data: " + b"a" * 65536 + b"\n\n")

    async with (
        gateway_over(FakeEngine("r0", answer=flood)) as gateway,
        aiohttp.ClientSession() as client,
        client.post(gateway.url + CHAT, json={}) as response,
    ):
        assert response.status == 200
        assert await gateway.cut() == 1
        async with asyncio.timeout(5):
            await gateway.idle()


@pytest.mark.parametrize(
    "options",
    [[], ["--backend", "http://a:1", "--all-namespaces"], ["--namespace", "a", "--all-namespaces"],
     ["--backend", "http://a:1", "--service", "a/b"], ["--all-namespaces", "--service", "a"],
     ["--all-namespaces", "--backend-read-token-file", "token"],
     ["--all-namespaces", "--session-header", "X-Sluice-Session"]],
)  # fmt: skip
def test_options_that_contradict_each_other_are_refused(options: list[str]) -> None:
    found = CliRunner().invoke(app, ["gateway", *options])
    words = ("give either", "--service is", "needs --backend", "must not begin with x-sluice-")
    assert (found.exit_code, any(each in found.stderr for each in words)) == (2, True)


def test_the_serving_process_gets_all_that_the_command_was_told() -> None:
    told = Arguments(
        backends=(), namespaces=("a", "b"), service="a/gateways", host="0.0.0.0", port=1, admin_port=2, policy="RoundRobin",
        session_header="x-chat", queue_requests=0, queue_seconds=0.5, api_keys_file="/keys/ä.yaml", engine_token_file=None,
        read_key_file="/keys/read", backend_read_token_file="/keys/token", is_following_kv=True, is_read_guarded=True, gateways=3, grace_seconds=0.5, drain_seconds=1.5,
    )  # fmt: skip
    assert parse(msgspec.json.encode(told).decode()) == told


async def test_the_serving_process_loads_neither_the_command_line_nor_validators_of_resources() -> None:
    listed = "import sys, sluice_gateway.__main__; print(*{name.partition('.')[0] for name in sys.modules})"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", listed, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    loaded = set(out.decode().split())
    assert "aiohttp" in loaded
    assert not loaded & {"typer", "rich", "pydantic", "pydantic_core", "kubernetes", "kopf", "numpy", "opentelemetry"}
