"""Keys at the gateway: who passes, what an engine is told of the caller, and how several gateways share a rate."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from sluice import contract
from sluice.auth.key_file import parse
from sluice.auth.rate_limits import RateLimits
from sluice.httpapi.errors import RateLimited
from sluice_gateway.keys.gatekeeper import Gatekeeper, KeyOptions, KeysInvalid
from sluice_gateway.queueing import QueueLimits
from sluice_gateway.server import Gateway
from tests.engine.server.auth.keys import bearer, entry, key_file
from tests.engine.server.auth.test_rate_limits import Clock
from tests.gateway.engines import CHAT, FakeEngine, gateway_over, load_document, queued
from tests.gateway.test_fleet import chat
from tests.gateway.test_queue import Held
from tests.gateway.test_wire import MESSAGES

TOKEN = "token-of-the-gateway"
FORGED = {
    "x-sluice-tenant": "root",
    "X-Sluice-Priority": "100",
    "x-sluice-gateway-token": "guess",
    "x-sluice-attempt": "9",
}


@pytest.fixture
def keys(tmp_path: Path) -> KeyOptions:
    (tmp_path / "keys.yaml").write_bytes(
        key_file(
            entry("free"),
            entry("low", priority={"max": -10}),
            entry("other", models=["another"]),
            entry("slow", requestsPerMinute=1),
            entry("small", tokensPerMinute=10_000),
        )
    )
    (tmp_path / "token").write_text(TOKEN + "\n")
    return KeyOptions(tmp_path / "keys.yaml", tmp_path / "token")


async def asked(gateway: Gateway, name: str | None, path: str = CHAT, **headers: str) -> tuple[int, dict[str, Any]]:
    sent = headers | ({} if name is None else {"Authorization": bearer(name)})
    async with aiohttp.ClientSession() as client, client.post(gateway.url + path, json=chat("a"), headers=sent) as got:
        return got.status, await got.json()


async def test_an_engine_gets_the_tenant_with_the_token_and_neither_the_key_nor_what_a_client_forged(
    keys: KeyOptions,
) -> None:
    engine = FakeEngine("r0")
    async with gateway_over(engine, keys=keys) as gateway:
        assert (await asked(gateway, "low", **FORGED))[0] == 200
        async with aiohttp.ClientSession() as client:
            mine = {"x-api-key": "key-of-free"}
            async with client.post(gateway.url + MESSAGES, json=chat("a"), headers=mine) as response:
                assert response.status == 200
    told = [
        {name.lower(): value for name, value in each.headers.items() if name.lower().startswith("x-sluice-")}
        for each in engine.seen
    ]
    assert told[0] == {"x-sluice-gateway-token": TOKEN, "x-sluice-tenant": "low", "x-sluice-priority": "-10"}
    assert told[1]["x-sluice-tenant"] == "free"
    assert not [name for each in engine.seen for name in ("Authorization", "x-api-key") if name in each.headers]


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [(None, 401, "invalid_api_key"), ("unknown", 401, "invalid_api_key"), ("other", 403, "model_not_allowed")],
)
async def test_who_may_not_pass_reaches_no_engine(name: str | None, status: int, code: str, keys: KeyOptions) -> None:
    engine = FakeEngine("r0")
    async with gateway_over(engine, keys=keys) as gateway:
        found, body = await asked(gateway, name, **FORGED)
        assert (found, body["error"]["code"]) == (status, code)
        async with aiohttp.ClientSession() as client, client.get(gateway.url + "/v1/models") as response:
            assert response.status == 401
    assert engine.seen == []


async def test_requests_beyond_a_rate_are_429_with_a_retry_after(keys: KeyOptions) -> None:
    async with gateway_over(FakeEngine("r0"), keys=keys) as gateway:
        assert (await asked(gateway, "slow"))[0] == 200
        found, body = await asked(gateway, "slow")
        assert (found, body["error"]["code"]) == (429, "rate_limit_exceeded")
        assert (await asked(gateway, "free"))[0] == 200


LIMITS = ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests")


@pytest.mark.parametrize("streams", [False, True])
async def test_every_response_has_what_is_left_of_the_keys_rates(keys: KeyOptions, streams: bool) -> None:
    """Not what an engine that counts too says, which knows only its own part."""

    async def answers(_: web.Request) -> web.Response:
        return web.Response(
            body=b"data: [DONE]\n\n",
            headers={"Content-Type": "text/event-stream" if streams else "text/plain"} | dict.fromkeys(LIMITS, "77"),
        )

    engines = [FakeEngine("r0", answer=answers), FakeEngine("r1", load_document(model="second"))]
    async with gateway_over(*engines, keys=keys) as gateway, aiohttp.ClientSession(gateway.url) as client:
        found = list[tuple[int, list[str | None]]]()
        for name, method, path in (
            ("slow", "POST", CHAT), ("slow", "POST", CHAT), ("slow", "GET", "/v1/models"), ("slow", "POST", "/v1/none"),
            ("unknown", "POST", CHAT),
        ):  # fmt: skip
            sent = {"Authorization": bearer(name), "x-request-id": "mine"}
            async with client.request(method, path, json=chat("a"), headers=sent) as response:
                found.append((response.status, [response.headers.get(each) for each in LIMITS]))
                passed_on = (response.status, method) == (200, "POST")
                assert passed_on or response.headers["x-request-id"] == "mine"
    assert found == [(200, ["1", "0"]), (429, ["1", "0"]), (200, ["1", "0"]), (404, [None, None]), (401, [None, None])]


async def test_a_key_without_rates_gets_no_headers_of_them(keys: KeyOptions) -> None:
    async with (
        gateway_over(FakeEngine("r0"), keys=keys) as gateway,
        aiohttp.ClientSession(gateway.url) as client,
        client.post(CHAT, json=chat("a"), headers={"Authorization": bearer("free")}) as response,
    ):
        assert response.status == 200
        assert not [name for name in response.headers if name.lower().startswith("x-ratelimit")]


async def test_prompt_and_output_tokens_are_charged_as_engines_count_them(keys: KeyOptions) -> None:
    counted = {"x-sluice-prompt-tokens": "6000", "x-sluice-output-tokens": "5000"}
    async with gateway_over(FakeEngine("r0", headers=counted), keys=keys) as gateway:
        assert [(await asked(gateway, "small"))[0] for _ in range(2)] == [200, 429]


async def test_the_tokens_of_a_request_that_failed_are_refunded(keys: KeyOptions) -> None:
    async def fails(_: web.Request) -> web.Response:
        return web.json_response({}, status=400)

    async with gateway_over(FakeEngine("r0", answer=fails), keys=keys) as gateway, aiohttp.ClientSession() as client:
        body = json.dumps(chat("word " * 7000)).encode()  # about 8,750 tokens, of 10,000
        sent = {"Authorization": bearer("small"), "Content-Type": "application/json"}
        for _ in range(3):
            async with client.post(gateway.url + CHAT, data=body, headers=sent) as response:
                assert response.status == 400


async def test_a_priority_above_the_keys_ceiling_counts_as_the_ceiling_in_the_queue(keys: KeyOptions) -> None:
    held = Held(limit=1)
    async with (
        gateway_over(held.engine("r0"), keys=keys, queue=QueueLimits(), admin_port=0) as gateway,
        aiohttp.ClientSession(gateway.url) as client,
    ):

        async def ask(name: str, priority: int) -> int:
            body = chat("a") | {"user": name, "priority": priority}
            async with client.post(CHAT, json=body, headers={"Authorization": bearer(name)}) as response:
                return response.status

        first = asyncio.create_task(ask("free", 0))
        await held.arrived.acquire()
        low = asyncio.create_task(ask("low", 100))
        await queued(gateway.admin_url, 1)
        free = asyncio.create_task(ask("free", -5))
        await queued(gateway.admin_url, 2)
        for _ in range(3):
            held.release.release()
        assert list(await asyncio.gather(first, low, free)) == [200, 200, 200]
    assert held.order == ["free", "free", "low"]


async def test_a_key_of_one_model_may_not_use_another_that_its_request_does_not_name(keys: KeyOptions) -> None:
    engine = FakeEngine("r0", load_document(model="chat"))
    async with gateway_over(engine, keys=keys) as gateway, aiohttp.ClientSession() as client:
        sent = {"Authorization": bearer("other")}
        async with client.post(gateway.url + CHAT, json={"messages": []}, headers=sent) as response:
            assert response.status == 403
    assert engine.seen == []


@pytest.mark.parametrize("content", [None, "short", "two words of a token"])
def test_a_token_file_that_cannot_be_used_is_told(content: str | None, keys: KeyOptions, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    if content is not None:
        path.write_text(content)
    with pytest.raises(KeysInvalid, match="--engine-token-file"):
        Gatekeeper(KeyOptions(keys.api_keys, path))
    with pytest.raises(KeysInvalid, match="needs --api-keys-file"):
        Gatekeeper(KeyOptions(None, keys.engine_token))


@given(st.integers(1, 8), st.integers(1, 600), st.integers(0, 2**20))
def test_gateways_together_grant_a_tenants_rate_within_a_tenth(gateways: int, rate: int, seed: int) -> None:
    (key,) = parse(key_file(entry("a", requestsPerMinute=rate)))
    clock = Clock()
    shares = [RateLimits(clock, 1.0 / gateways) for _ in range(gateways)]
    minutes, granted = 50, 0
    for turn in range(minutes * 60):  # each second more than the rate, spread over the gateways as a Service does
        clock.now += 1.0
        for number in range(rate // 30 + gateways):
            try:
                shares[(turn * 7 + number + seed) % gateways].take(key, "requests", 1)
                granted += 1
            except RateLimited:
                pass
    burst = rate + gateways  # a full bucket at the start; one that holds less than one request grants it on credit
    assert 0.9 * minutes * rate - gateways <= granted <= 1.1 * minutes * rate + burst


def test_the_contract_names_the_headers_with_the_gateways_prefix() -> None:
    names = (contract.HEADER_TENANT, contract.HEADER_PRIORITY, contract.HEADER_GATEWAY_TOKEN, contract.HEADER_ATTEMPT)
    assert all(name.startswith(contract.HEADER_PREFIX) for name in names)
