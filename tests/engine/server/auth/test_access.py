"""Access over real sockets: the test acts as the engine, so it sees the tenant and priority of each request."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sluice import contract
from sluice.auth.access import AccessControl
from sluice.auth.key_file import parse
from sluice.auth.key_store import KeyStore
from sluice_engine import messages
from sluice_engine.server.errors import ApiError
from tests.engine.server.api.generation.test_handlers import Desk, desk_of
from tests.engine.server.auth.keys import bearer, entry, key_file
from tests.engine.server.auth.test_rate_limits import Clock
from tests.engine.server.transport.test_connection_limits import until

KEYS = key_file(
    entry("low", priority={"max": -10}),
    entry("other", models=["another"]),
    entry("slow", requestsPerMinute=1),
    entry("small", tokensPerMinute=10),
    entry("free"),
)
PROMPT = {"prompt": [5, 6, 7, 8]}


class Refusals(list[ApiError]):
    """The refused requests' errors."""


@pytest.fixture
def refusals() -> Refusals:
    return Refusals()


@pytest.fixture
def access(refusals: Refusals) -> AccessControl:
    return AccessControl(KeyStore(parse(KEYS)), refusals.append, Clock())


@pytest.fixture
async def generates(tiny_model: Path, access: AccessControl) -> AsyncIterator[Desk]:
    async for desk in desk_of(tiny_model, "generate", access=access):
        yield desk


@pytest.fixture
async def embeds(tiny_model: Path, access: AccessControl) -> AsyncIterator[Desk]:
    async for desk in desk_of(tiny_model, "embed", access=access):
        yield desk


async def submitted(desk: Desk, path: str, body: dict[str, Any], name: str, output: int = 1) -> Any:
    """What the engine receives of a request that it then finishes with `output` tokens or a vector."""
    before = len(desk.client.sent)
    call = desk.post(path, body, bearer(name))
    await until(lambda: len(desk.client.sent) > before)
    message = desk.client.sent[-1]
    vector = b"\0" * 8 if isinstance(message, messages.Encode) else b""
    finish = messages.Delta(message.request_id, (5,) * output, "stop" if vector else "length", vector=vector)
    desk.client.say(desk.story.report(finish))
    assert (await call)[0] == 200
    return message


async def refused(desk: Desk, name: str | None, body: dict[str, Any] = PROMPT) -> tuple[int, dict[str, Any]]:
    status, content = await desk.post(contract.PATH_COMPLETIONS, body, None if name is None else bearer(name))
    return status, json.loads(content)["error"]


async def test_the_tenant_is_the_keys_name_whatever_the_request_says(generates: Desk) -> None:
    forged = {
        **PROMPT,
        "user": "low",
        "safety_identifier": "low",
        "prompt_cache_key": "low",
        "metadata": {"tenant": "low"},
    }
    message = await submitted(generates, contract.PATH_COMPLETIONS, forged, "free")
    assert (message.tenant, message.priority) == ("free", 0)


async def test_texts_are_of_the_keys_tenant(embeds: Desk) -> None:
    message = await submitted(embeds, contract.PATH_EMBEDDINGS, {"input": [[5, 6]], "priority": 7}, "low")
    assert (message.tenant, message.priority) == ("low", -10)


@pytest.mark.parametrize(("requested", "granted"), [(100, -10), (0, -10), (-10, -10), (-50, -50)])
async def test_a_priority_above_the_ceiling_is_lowered_to_it(generates: Desk, requested: int, granted: int) -> None:
    message = await submitted(generates, contract.PATH_COMPLETIONS, {**PROMPT, "priority": requested}, "low")
    assert message.priority == granted


async def test_each_refusal_has_its_status_and_is_counted_and_reaches_no_engine(
    generates: Desk, refusals: Refusals
) -> None:
    assert [(await refused(generates, name))[0] for name in (None, "unknown", "other")] == [401, 401, 403]
    assert [error.status for error in refusals] == [401, 401, 403]
    _, error = await refused(generates, "other")
    assert (error["param"], error["code"]) == ("model", "model_not_allowed")
    assert "'other'" in error["message"] and "'m'" in error["message"]
    assert generates.client.sent == []


async def test_a_refused_body_is_not_read(generates: Desk) -> None:
    """The status is that of the key, although the body is no JSON of a request."""
    assert (await refused(generates, "unknown", {"model": 5}))[0] == 401
    assert (await refused(generates, "other", {"model": 5}))[0] == 403
    assert (await refused(generates, "free", {"model": 5}))[0] == 400


async def test_requests_above_the_rate_are_429(generates: Desk) -> None:
    await submitted(generates, contract.PATH_COMPLETIONS, PROMPT, "slow")
    status, error = await refused(generates, "slow")
    assert (status, error["type"], error["code"]) == (429, "requests", "rate_limit_exceeded")
    await submitted(generates, contract.PATH_COMPLETIONS, PROMPT, "free")  # other tenants are not affected


async def test_prompt_and_output_tokens_count(generates: Desk) -> None:
    await submitted(generates, contract.PATH_COMPLETIONS, PROMPT, "small", output=2)
    await submitted(generates, contract.PATH_COMPLETIONS, PROMPT, "small", output=5)  # 4 + 2 + 4: the bucket is empty
    status, error = await refused(generates, "small")
    assert (status, error["type"]) == (429, "tokens")
    assert "this request needs 4" in error["message"]


async def test_a_rejected_request_is_refunded_its_prompt(generates: Desk) -> None:
    for _ in range(3):  # 12 tokens of a limit of 10, if they were kept
        call = generates.post(contract.PATH_COMPLETIONS, PROMPT, bearer("small"))
        await until(lambda: bool(generates.client.sent))
        generates.client.say(messages.Rejected(generates.client.sent.pop().request_id, "queue_full", 1.0, "full"))
        assert (await call)[0] == 503


async def test_a_new_key_file_admits_the_next_request_and_keeps_the_used_rates(
    generates: Desk, access: AccessControl
) -> None:
    await submitted(generates, contract.PATH_COMPLETIONS, PROMPT, "slow")
    access.replace(KeyStore(parse(key_file(entry("slow", requestsPerMinute=1), entry("new")))))
    await submitted(generates, contract.PATH_COMPLETIONS, PROMPT, "new")
    assert (await refused(generates, "free"))[0] == 401
    assert (await refused(generates, "slow"))[0] == 429
