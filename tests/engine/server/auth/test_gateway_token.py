"""The tenant that a gateway names: an engine takes it with the gateway's token, and from no other client."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sluice import contract
from sluice.auth.access import AccessControl
from sluice.auth.gateway_token import GatewayToken
from sluice.auth.key_file import parse
from sluice.auth.key_store import KeyStore
from sluice_engine import messages
from tests.engine.server.api.generation.test_handlers import Desk, desk_of
from tests.engine.server.auth.keys import bearer, entry, key_file
from tests.engine.server.transport.test_connection_limits import until

TOKEN = "token-of-the-gateway"
PROMPT = {"prompt": [5, 6, 7, 8]}
TOKEN_HEADER, TENANT, PRIORITY = contract.HEADER_GATEWAY_TOKEN, contract.HEADER_TENANT, contract.HEADER_PRIORITY


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    return path


@pytest.fixture
async def desk(tiny_model: Path, token_file: Path) -> AsyncIterator[Desk]:
    store = KeyStore(parse(key_file(entry("slow", requestsPerMinute=1), entry("other", models=["another"]))))
    access = AccessControl(store, lambda _: None, gateway_token=GatewayToken(token_file))
    async for desk in desk_of(tiny_model, "generate", access=access):
        yield desk


def replace(path: Path, token: str) -> None:
    path.write_text(token)


async def answered(desk: Desk, headers: dict[str, str], **fields: object) -> tuple[int, messages.Submit | None]:
    """The status, and what the engine received."""
    before = len(desk.client.sent)
    call = desk.send(contract.PATH_COMPLETIONS, {**PROMPT, **fields}, headers)
    await until(lambda: len(desk.client.sent) > before or call.done())
    if call.done():
        return (await call)[0], None
    message = desk.client.sent[-1]
    assert isinstance(message, messages.Submit)
    desk.client.say(desk.story.report(messages.Delta(message.request_id, (5,), "length")))
    return (await call)[0], message


async def test_the_gateways_word_names_tenant_and_ceiling_and_no_rate_is_counted_twice(desk: Desk) -> None:
    sent = {TOKEN_HEADER: TOKEN, TENANT: "slow", PRIORITY: "-20"}
    for _ in range(3):
        status, message = await answered(desk, sent, priority=50)
        assert status == 200
        assert message is not None
        assert (message.tenant, message.priority) == ("slow", -20)
    status, message = await answered(desk, {TOKEN_HEADER: TOKEN, TENANT: "of-another-file"})
    assert status == 200
    assert message is not None
    assert message.tenant == "of-another-file"
    assert (await answered(desk, sent | {TENANT: "other"}))[0] == 403


async def test_a_wait_in_the_gateway_counts_if_it_proves_itself(desk: Desk) -> None:
    waited = {contract.HEADER_WAITED_MS: "5000"}
    now = time.monotonic()
    _, message = await answered(desk, {TOKEN_HEADER: TOKEN, TENANT: "slow"} | waited)
    assert message is not None
    assert message.arrived_at < now - 4.0 and message.waited == 5.0
    _, message = await answered(desk, {"Authorization": bearer("slow")} | waited)
    assert message is not None
    assert message.arrived_at >= now and message.waited == 0.0


@pytest.mark.parametrize(
    ("count", "last"), [("0", False), ("1", False), ("2", True), ("3", True), ("-2", False), ("²", False), ("x", False)]
)
async def test_the_count_of_retries_of_official_clients_tells_the_last_attempt(
    desk: Desk, count: str, last: bool
) -> None:
    sent = {"Authorization": bearer("slow"), "x-stainless-retry-count": count}
    status, message = await answered(desk, sent)
    assert status == 200
    assert message is not None
    assert message.last_attempt == last


@pytest.mark.parametrize(
    "headers",
    [
        {TENANT: "slow"},
        {TOKEN_HEADER: "guess", TENANT: "slow"},
        {TOKEN_HEADER: "", TENANT: "slow"},
        {TOKEN_HEADER: TOKEN, TENANT: "../slow"},
        {TOKEN_HEADER: TOKEN, TENANT: "slow", PRIORITY: "1e9"},
        {TOKEN_HEADER: "guess", "Authorization": bearer("slow")},
    ],
    ids=range(6),
)
async def test_without_the_token_the_headers_admit_no_request(desk: Desk, headers: dict[str, str]) -> None:
    assert await answered(desk, headers) == (401, None)


async def test_the_headers_without_a_token_change_nothing_of_a_verified_key(desk: Desk) -> None:
    status, message = await answered(desk, {"Authorization": bearer("slow"), TENANT: "other", PRIORITY: "-100"})
    assert status == 200
    assert message is not None
    assert (message.tenant, message.priority) == ("slow", 0)


async def test_a_replaced_token_counts_from_its_first_use(desk: Desk, token_file: Path) -> None:
    replace(token_file, "another-token-of-the-gateway")
    assert (await answered(desk, {TOKEN_HEADER: "another-token-of-the-gateway", TENANT: "slow"}))[0] == 200
    assert (await answered(desk, {TOKEN_HEADER: TOKEN, TENANT: "slow"}))[0] == 401
