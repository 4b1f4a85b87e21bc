"""A gateway over engines that publish their load: who is chosen, who is left out, who comes back, and what is passed on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from openai import AsyncOpenAI, NotFoundError

from sluice.logs import FIELDS
from sluice_gateway.server import Gateway
from tests.gateway.engines import CHAT, FakeEngine, gateway_over, load_document

LONG = "Explain the KV cache of a language model, step by step. " * 40


def chat(*turns: str, model: str = "chat") -> dict[str, object]:
    roles = ("user", "assistant")
    return {"model": model, "messages": [{"role": roles[n % 2], "content": text} for n, text in enumerate(turns)]}


async def ask(gateway: Gateway, body: object, **headers: str) -> tuple[int, dict[str, object]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as client,
        client.post(gateway.url + CHAT, json=body, headers=named) as response,
    ):
        return response.status, await response.json()


async def chosen(gateway: Gateway, body: object, **headers: str) -> object:
    return (await ask(gateway, body, **headers))[1]["from"]


async def metric(gateway: Gateway, line: str) -> bool:
    async with aiohttp.ClientSession() as client, client.get(gateway.admin_url + "/metrics") as response:
        return line in (await response.text()).splitlines()


async def test_a_conversation_returns_to_the_replica_that_has_its_prefix() -> None:
    engines = [FakeEngine(f"r{n}") for n in range(3)]
    async with gateway_over(*engines) as gateway:
        first = [await chosen(gateway, chat(f"{n} {LONG}")) for n in range(6)]
        again = [await chosen(gateway, chat(f"{n} {LONG}", "It is a table.", "And then?")) for n in range(6)]
    assert again == first
    assert len(set(first)) == 3


async def test_keys_share_no_prefix() -> None:
    engines = [FakeEngine("r0"), FakeEngine("r1")]
    async with gateway_over(*engines) as gateway:
        first = await chosen(gateway, chat(LONG), Authorization="Bearer one")
        assert await chosen(gateway, chat(LONG), Authorization="Bearer two") != first  # in turn
        assert await chosen(gateway, chat(LONG), Authorization="Bearer one") == first


async def test_the_published_load_decides() -> None:
    engines = [FakeEngine("busy", load_document(running=64, waiting=40)), FakeEngine("idle")]
    async with gateway_over(*engines) as gateway:
        assert [await chosen(gateway, chat(f"{n}")) for n in range(4)] == ["idle"] * 4
        engines[0].load, engines[1].load = engines[1].load, engines[0].load
        await gateway.scraper.scrape()
        assert await chosen(gateway, chat("x")) == "busy"


async def test_a_session_stays_on_its_replica() -> None:
    engines = [FakeEngine(f"r{n}") for n in range(4)]
    async with gateway_over(*engines, session_header="x-session-id", policy="RoundRobin") as gateway:
        found = {await chosen(gateway, chat("a"), x_session_id="mine") for _ in range(8)}
        assert len(found) == 1
        assert len({await chosen(gateway, chat("a"), x_session_id=f"s{n}") for n in range(30)}) == 4


async def test_a_replica_that_refuses_connections_is_out_at_once_and_back_after_a_probe() -> None:
    engines = [FakeEngine("r0"), FakeEngine("r1")]
    async with gateway_over(*engines, policy="RoundRobin") as gateway:
        await engines[0].stop()
        assert [await chosen(gateway, chat("a")) for _ in range(4)] == ["r1"] * 4
        port = engines[0].backend.port
        states = {state.backend.name: state for state in gateway.fleet.states()}
        assert states["r0"].fault == "it refuses connections"
        fault_backend = engines[0].backend
        await engines[0].start(port)
        engines[0].backend = fault_backend  # the same pod; its admin port still refuses
        await gateway.scraper.scrape()
        assert {await chosen(gateway, chat("a")) for _ in range(4)} == {"r0", "r1"}


@pytest.mark.parametrize(
    "load",
    [
        "garbage",
        "[" * 10_000,
        load_document(running=-1),
        load_document(running=True),
        load_document(limit="64"),
        load_document(kv_held_tokens=200_000),
        load_document(step_model={"base": 1e300}),
        {key: value for key, value in load_document().items() if key != "ready"},
        load_document(model="x" * 20_000),
    ],
    ids=range(9),
)
async def test_a_replica_with_a_wrong_load_document_is_left_out_until_it_is_right(
    load: object, caplog: pytest.LogCaptureFixture
) -> None:
    engines = [FakeEngine("liar"), FakeEngine("r1")]
    async with gateway_over(*engines, policy="RoundRobin") as gateway:
        engines[0].load = load
        for _ in range(3):
            await gateway.scraper.scrape()
        assert [await chosen(gateway, chat("a")) for _ in range(3)] == ["r1"] * 3
        assert sum("replica liar is out: its /load is wrong" in line for line in caplog.messages) == 1
        engines[0].load = load_document()
        await gateway.scraper.scrape()
        assert {await chosen(gateway, chat("a")) for _ in range(2)} == {"liar", "r1"}


async def test_a_load_document_that_was_wrong_is_not_right_because_it_cannot_be_read_any_more() -> None:
    engines = [FakeEngine("liar"), FakeEngine("r1")]
    async with gateway_over(*engines, policy="RoundRobin") as gateway:
        engines[0].load = "garbage"
        await gateway.scraper.scrape()
        _, admin_port = engines[0].runners
        await admin_port.cleanup()
        await gateway.scraper.scrape()
        assert [await chosen(gateway, chat("a")) for _ in range(3)] == ["r1"] * 3


async def test_a_replica_that_is_not_ready_is_not_chosen_while_one_is() -> None:
    engines = [FakeEngine("loading", load_document(ready=False, phase="loading")), FakeEngine("r1")]
    async with gateway_over(*engines, policy="RoundRobin") as gateway:
        assert [await chosen(gateway, chat("a")) for _ in range(4)] == ["r1"] * 4


async def test_the_model_in_the_request_chooses_and_an_unknown_one_is_a_404_with_the_names() -> None:
    engines = [FakeEngine("r0"), FakeEngine("r1", load_document(model="other"))]
    async with gateway_over(*engines) as gateway:
        assert [await chosen(gateway, chat("a", model=name)) for name in ("chat", "other", "chat")] == [
            "r0",
            "r1",
            "r0",
        ]
        status, answer = await ask(gateway, chat("a", model="../../etc"))
        assert status == 404
        assert answer["error"] == {
            "message": "The model does not exist; there is chat, other.",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        async with aiohttp.ClientSession() as client, client.get(gateway.url + "/v1/models") as response:
            assert [one["id"] for one in (await response.json())["data"]] == ["chat", "other"]


async def test_headers_of_the_gateway_are_its_own_and_traces_pass() -> None:
    engine = FakeEngine("r0")
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with gateway_over(engine) as gateway:
        await ask(
            gateway, chat("a"), X_Sluice_Attempt="7", x_sluice_tenant="root", x_sluice_priority="100",
            traceparent=trace, tracestate="a=1", x_request_id="bad id",
        )  # fmt: skip
    headers = engine.seen[0].headers
    assert not [name for name in headers if name.lower().startswith("x-sluice-")]
    assert (headers["traceparent"], headers["tracestate"]) == (trace, "a=1")
    assert len(headers["x-request-id"]) == 32


def dies(after: bytes | None) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """An engine that is killed: before its answer (None), after its headers (b""), or after these bytes."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if after is not None:
            await response.prepare(request)
            if after:
                await response.write(after)
        assert request.transport is not None
        request.transport.abort()
        return response

    return handler


@pytest.mark.parametrize("after", [None, b""])
async def test_a_replica_lost_before_the_first_byte_costs_the_client_nothing(after: bytes | None) -> None:
    engines = [FakeEngine("r0", answer=dies(after)), FakeEngine("r1")]
    async with gateway_over(*engines, policy="RoundRobin") as gateway:
        assert [await chosen(gateway, chat("a")) for _ in range(4)] == ["r1"] * 4
    assert [len(engine.seen) for engine in engines] == [2, 4]
    assert [request.headers.get("x-sluice-attempt") for request in engines[1].seen] == ["2", None, "2", None]


async def test_a_stream_that_has_begun_ends_with_an_error_event_and_is_not_retried() -> None:
    engines = [FakeEngine("r0", answer=dies(b"data: 1\n\n")), FakeEngine("r1", answer=dies(b"data: 1\n\n"))]
    async with (
        gateway_over(*engines) as gateway,
        aiohttp.ClientSession() as client,
        client.post(gateway.url + CHAT, json=chat("a")) as response,
    ):
        events = (await response.text()).split("\n\n")
    assert events[0] == "data: 1"
    assert '"code":"upstream_lost"' in events[1]
    assert sum(len(engine.seen) for engine in engines) == 1


async def test_retries_are_bounded_to_a_tenth_of_the_traffic() -> None:
    engines = [FakeEngine(f"r{n}", answer=dies(None)) for n in range(3)]
    async with gateway_over(*engines) as gateway:
        for _ in range(60):
            assert (await ask(gateway, chat("a")))[0] == 503
    assert 60 + 10 <= sum(len(engine.seen) for engine in engines) <= 60 + 10 + 6


async def test_the_way_of_a_request_is_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sluice.gateway.request")
    engines = [
        FakeEngine("r0", answer=dies(None)),
        FakeEngine("r1", headers={"x-sluice-prompt-tokens": "560", "x-sluice-cached-tokens": "512"}),
    ]
    async with gateway_over(*engines, policy="RoundRobin") as gateway:
        await ask(gateway, chat(LONG), x_request_id="id-1")
    (line,) = [record for record in caplog.records if record.name == "sluice.gateway.request"]
    fields = getattr(line, FIELDS)
    assert fields["way"] == ["r0 (lost)", "r1"]
    assert (fields["chosen_by"], fields["cached_tokens"], fields["prompt_tokens"]) == ("retry", 512, 560)
    assert line.getMessage().startswith(
        "chat 200: r0 (lost) → r1 by retry, 560 prompt tokens (512 cached, 0 expected), "
    )
    assert LONG[:20] not in line.getMessage()


async def test_metrics_count_what_happened_and_readiness_ends_with_the_drain() -> None:
    engines = [FakeEngine("r0", answer=dies(None)), FakeEngine("r1")]
    async with gateway_over(*engines, policy="RoundRobin", admin_port=0) as gateway, aiohttp.ClientSession() as client:
        for _ in range(2):
            await ask(gateway, chat("a"))
        async with client.get(gateway.admin_url + "/metrics") as response:
            text = await response.text()
        for line in (
            'sluice_gateway_requests_total{status="2xx"} 2.0',
            'sluice_gateway_chosen_total{reason="retry"} 1.0',
            'sluice_gateway_chosen_total{reason="load"} 1.0',
            'sluice_gateway_retries_total{reason="lost"} 1.0',
            'sluice_gateway_replicas{state="ready"} 2.0',
            "sluice_gateway_overhead_seconds_count 2.0",
        ):
            assert line in text
        for path, status in (("/readyz", 200), ("/readyz", 503), ("/livez", 200)):
            if status == 503:
                gateway.unready()
            async with client.get(gateway.admin_url + path) as response:
                assert response.status == status
        async with client.post(gateway.url + CHAT, json=chat("a")) as response:
            assert (response.status, response.headers["Connection"]) == (200, "close")


async def test_the_official_client_finds_a_model_whose_name_has_a_slash() -> None:
    engine = FakeEngine("r0", load_document(model="Qwen/Qwen3-8B"))
    async with (
        gateway_over(engine) as gateway,
        AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client,
    ):
        assert (await client.models.retrieve("Qwen/Qwen3-8B")).id == "Qwen/Qwen3-8B"
        with pytest.raises(NotFoundError):
            await client.models.retrieve("Qwen/other")


async def test_answers_correct_what_is_thought_of_a_cache_and_of_tokens() -> None:
    engine = FakeEngine("r0", headers={"x-sluice-prompt-tokens": "2000", "x-sluice-cached-tokens": "0"})
    async with gateway_over(engine) as gateway:
        before = gateway.fleet.tokens_per_byte
        for _ in range(100):
            await ask(gateway, chat(LONG))
        assert gateway.fleet.tokens_per_byte > 2 * before  # about 2,300 bytes
        held = len(gateway.fleet.caches)
        engine.load = load_document(kv_total_tokens=2000)
        await gateway.scraper.scrape()
        await ask(gateway, chat(LONG))
        assert len(gateway.fleet.caches) < held  # a tenth of the published cache


async def test_loads_are_given_back_at_the_end() -> None:
    waiting, arrived = asyncio.Event(), asyncio.Semaphore(0)

    async def slow(_: web.Request) -> web.Response:
        arrived.release()
        await waiting.wait()
        return web.json_response({"from": "r0"})

    engine = FakeEngine("r0", answer=slow)
    async with gateway_over(engine) as gateway:
        asked = [asyncio.create_task(ask(gateway, chat(f"{n} {LONG}"))) for n in range(3)]
        for _ in range(3):
            await arrived.acquire()
        (state,) = gateway.fleet.states()
        assert (state.in_flight, state.replica().running) == (3, 3)
        assert state.replica().prefill_tokens == pytest.approx(3 * len(LONG) / 4, rel=0.1)
        waiting.set()
        await asyncio.gather(*asked)
        assert (state.in_flight, state.replica().prefill_tokens) == (0, 0.0)
