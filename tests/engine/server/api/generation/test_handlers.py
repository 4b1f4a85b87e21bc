"""Handlers over real sockets. The test acts as the engine, so it controls when a sample finishes or is rejected."""

import asyncio
import gc
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp
import pytest
from aiohttp import web

from sluice import contract
from sluice.auth.access import AccessControl
from sluice.httpapi.connection import HttpServer
from sluice.httpapi.connection_limits import ConnectionLimits
from sluice_engine import messages
from sluice_engine.config import EngineOptions
from sluice_engine.server.api import data_routes
from sluice_engine.server.api.generation.request_schema import Generation
from sluice_engine.server.context import Serving
from sluice_engine.server.engine.client import EngineClient, Listener
from sluice_engine.server.lifecycle import Lifecycle
from sluice_engine.server.metrics import EngineMetrics
from sluice_engine.server.transport.router import Router
from sluice_engine.server.transport.sockets import bind
from sluice_engine.text import load_text_model
from tests.engine.server.test_metrics import Story
from tests.engine.server.transport.test_connection_limits import until

OPTIONS = EngineOptions(model="m", served_name="m")


class FakeEngineClient(EngineClient):
    """A client whose engine is the test. Sent messages are collected in `sent`."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(OPTIONS, listener)
        self.sent: list[Any] = []
        self._connection = self  # type: ignore[assignment]  # only `drain` of a connection is used

    @property
    def alive(self) -> bool:
        return True

    def send(self, message: messages.ToEngine) -> None:
        self.sent.append(message)

    async def drain(self) -> None:
        """Returns at once: there is no backpressure."""

    def say(self, message: messages.FromEngine) -> None:
        """Delivers a message as if the engine had sent it."""
        self._dispatch(message)


@dataclass
class Desk:
    """A data port together with its engine client."""

    port: int
    story: Story
    client: FakeEngineClient
    limits: ConnectionLimits
    server: HttpServer
    serving: Serving
    calls: list["asyncio.Task[tuple[int, bytes]]"] = field(default_factory=list)

    def post(
        self, path: str, body: dict[str, Any], authorization: str | None = None
    ) -> "asyncio.Task[tuple[int, bytes]]":
        return self.send(path, body, {} if authorization is None else {"Authorization": authorization})

    def send(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> "asyncio.Task[tuple[int, bytes]]":
        async def call() -> tuple[int, bytes]:
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.post(f"http://127.0.0.1:{self.port}{path}", json={"model": "m"} | body) as answer,
            ):
                return answer.status, await answer.read()

        self.calls.append(asyncio.create_task(call()))
        return self.calls[-1]

    def outcomes(self) -> dict[str, float]:
        found = {each: self.story.value(f'{contract.REQUESTS}{{outcome="{each}"}}') for each in contract.OUTCOMES}
        return {each: count for each, count in found.items() if count}


def without_keys(serving: Serving) -> AccessControl:
    """Admits every request, as a server without a key file."""
    return AccessControl(None, serving.access_metrics.refused)


async def desk_of(
    model: Path,
    task: Literal["generate", "embed"],
    make: Callable[[EngineMetrics], FakeEngineClient] = FakeEngineClient,
    access: AccessControl | None = None,
) -> AsyncIterator[Desk]:
    """A data port that needs no key, or admits by `access`."""
    story = Story()
    client = make(story.metrics)
    serving = Serving(OPTIONS, story.metrics, Lifecycle(0.0, lambda: None), client)
    serving.text_loaded(load_text_model(model))
    client.say(
        messages.Ready(
            dtype="float32", device="cpu", block_size=16, num_blocks=10, max_model_length=64, vocab_size=128,
            paced=False, load_seconds={}, task=task, vector_size=2,
        )
    )  # fmt: skip
    serving.check_complete()
    limits = ConnectionLimits(8)
    access = without_keys(serving) if access is None else access
    server = HttpServer(Router(serving, data_routes.routes(), loopback=True, access=access), limits)
    runner = web.ServerRunner(server)
    await runner.setup()
    listener = bind("127.0.0.1", 0, "--port")
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)  # backpressure of a slow reader shows early
    await web.SockSite(runner, listener).start()
    desk = Desk(int(listener.getsockname()[1]), story, client, limits, server, serving)
    yield desk
    for call in desk.calls:
        call.cancel()
    await runner.cleanup()
    await serving.grammars.stop()
    serving.threads.shutdown()


@pytest.fixture
async def generates(tiny_model: Path) -> AsyncIterator[Desk]:
    async for desk in desk_of(tiny_model, "generate"):
        yield desk


@pytest.fixture
async def embeds(tiny_model: Path) -> AsyncIterator[Desk]:
    async for desk in desk_of(tiny_model, "embed"):
        yield desk


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (contract.PATH_CHAT_COMPLETIONS, {"messages": [{"role": "user", "content": "hello"}]}),
        (contract.PATH_COMPLETIONS, {"prompt": "hello"}),
        (contract.PATH_COMPLETIONS, {"prompt": [5, 6, 7]}),
    ],
)
async def test_a_running_response_holds_neither_the_prompt_nor_body_bytes(
    generates: Desk, path: str, body: dict[str, Any]
) -> None:
    call = generates.post(path, body)
    await until(lambda: bool(generates.client.sent) and generates.limits.body_budget.count == 0)
    gc.collect()  # collects cyclic garbage of earlier calls
    held = [each for each in gc.get_objects() if type(each) is Generation]
    assert [(each.messages, each.prompts) for each in held] == [(None, None)]
    generates.client.say(generates.story.report(messages.Delta(generates.client.sent[0].request_id, (5,), "length")))
    assert (await call)[0] == 200


async def test_the_texts_of_a_rejected_call_count_as_rejected_not_aborted(embeds: Desk) -> None:
    call = embeds.post(contract.PATH_EMBEDDINGS, {"input": [[5], [6], [7]]})
    await until(lambda: len(embeds.client.sent) == 3)
    done, lost, other = (message.request_id for message in embeds.client.sent)
    embeds.client.say(embeds.story.report(messages.Delta(done, (), "stop", vector=b"\0" * 8)))
    embeds.client.say(messages.Rejected(lost, "displaced", 1.0, "displaced by others"))
    assert (await call)[0] == 503
    assert embeds.outcomes() == {"stop": 1, "rejected": 2}
    assert embeds.story.value(f'{contract.REJECTIONS}{{reason="displaced"}}') == 2
    assert embeds.client.sent[3:] == [messages.Cancel(other, "abort")]  # the engine stops work for the call


@pytest.mark.parametrize("header", [None, "Bearer one", "Bearer two", "Basic b25lOnR3bw=="])
async def test_an_unverified_header_sets_no_tenant(generates: Desk, header: str | None) -> None:
    call = generates.post(contract.PATH_COMPLETIONS, {"prompt": "hello"}, header)
    await until(lambda: len(generates.client.sent) == 1)
    assert generates.client.sent[0].tenant == ""
    generates.client.say(generates.story.report(messages.Delta(generates.client.sent[0].request_id, (5,), "length")))
    assert (await call)[0] == 200


@pytest.mark.parametrize("header", [None, "Bearer one"])
async def test_an_unverified_header_sets_no_tenant_of_texts(embeds: Desk, header: str | None) -> None:
    call = embeds.post(contract.PATH_EMBEDDINGS, {"input": [[5]]}, header)
    await until(lambda: len(embeds.client.sent) == 1)
    assert embeds.client.sent[0].tenant == ""
    embeds.client.say(
        embeds.story.report(messages.Delta(embeds.client.sent[0].request_id, (), "stop", vector=b"\0" * 8))
    )
    assert (await call)[0] == 200


async def test_a_wait_in_the_gateway_counts_for_texts_too(embeds: Desk) -> None:
    now = time.monotonic()
    call = embeds.send(contract.PATH_EMBEDDINGS, {"input": [[5]]}, {contract.HEADER_WAITED_MS: "5000"})
    await until(lambda: len(embeds.client.sent) == 1)
    sent = embeds.client.sent[0]
    assert sent.waited == 5.0 and sent.arrived_at < now - 4.0
    embeds.client.say(embeds.story.report(messages.Delta(sent.request_id, (), "stop", vector=b"\0" * 8)))
    assert (await call)[0] == 200
