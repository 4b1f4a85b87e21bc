"""Handlers over real sockets with the test as the engine, so that it decides when an answer ends or is refused."""

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp
import pytest
from aiohttp import web

from sluice import contract
from sluice_engine import ipc
from sluice_engine.metrics import EngineMetrics
from sluice_engine.options import EngineOptions
from sluice_engine.server import data
from sluice_engine.server.lifecycle import Lifecycle
from sluice_engine.server.link import EngineLink
from sluice_engine.server.places import Places
from sluice_engine.server.protocol import HttpServer
from sluice_engine.server.routes import Router
from sluice_engine.server.serving import Serving
from sluice_engine.server.sockets import bind
from sluice_engine.server.validate import Generation
from sluice_engine.text import load_text_model
from tests.engine.test_server_metrics import Story
from tests.engine.test_server_places import until

OPTIONS = EngineOptions(model="m", served_name="m")


class Hand(EngineLink):
    """A link to an engine that is the test: what is sent lies in `sent`."""

    def __init__(self, listener: EngineMetrics) -> None:
        super().__init__(OPTIONS, listener)
        self.sent: list[Any] = []
        self._writer = self  # type: ignore[assignment]  # of a writer, only `drain` is used

    @property
    def alive(self) -> bool:
        return True

    def send(self, message: ipc.ToEngine) -> None:
        self.sent.append(message)

    async def drain(self) -> None:
        """Nothing is ever held up."""

    def say(self, message: ipc.FromEngine) -> None:
        """The engine says this."""
        self._dispatch(message)


@dataclass
class Desk:
    """A data port and the engine's side of it."""

    port: int
    story: Story
    link: Hand
    places: Places
    calls: list["asyncio.Task[tuple[int, bytes]]"] = field(default_factory=list)

    def post(self, path: str, body: dict[str, Any]) -> "asyncio.Task[tuple[int, bytes]]":
        async def call() -> tuple[int, bytes]:
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"http://127.0.0.1:{self.port}{path}", json={"model": "m"} | body) as answer,
            ):
                return answer.status, await answer.read()

        self.calls.append(asyncio.create_task(call()))
        return self.calls[-1]

    def outcomes(self) -> dict[str, float]:
        found = {each: self.story.value(f'{contract.REQUESTS}{{outcome="{each}"}}') for each in contract.OUTCOMES}
        return {each: count for each, count in found.items() if count}


async def desk_of(model: Path, task: Literal["generate", "embed"]) -> AsyncIterator[Desk]:
    story = Story()
    link = Hand(story.metrics)
    serving = Serving(OPTIONS, story.metrics, Lifecycle(0.0, lambda: None), link)
    serving.text_loaded(load_text_model(model))
    link.say(
        ipc.Ready(
            dtype="float32", device="cpu", block_size=16, num_blocks=10, max_model_length=64, vocab_size=128,
            paced=False, load_seconds={}, task=task, vector_size=2,
        )
    )  # fmt: skip
    serving.check_complete()
    places = Places(8)
    runner = web.ServerRunner(HttpServer(Router(serving, data.routes("m"), loopback=True), places))
    await runner.setup()
    listener = bind("127.0.0.1", 0, "--port")
    await web.SockSite(runner, listener).start()
    desk = Desk(int(listener.getsockname()[1]), story, link, places)
    yield desk
    for call in desk.calls:
        call.cancel()
    await runner.cleanup()
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
async def test_an_answer_in_the_making_holds_neither_prompt_nor_bytes(
    generates: Desk, path: str, body: dict[str, Any]
) -> None:
    call = generates.post(path, body)
    await until(lambda: bool(generates.link.sent) and generates.places.room.count == 0)
    gc.collect()  # those of earlier calls that lie in cycles
    held = [each for each in gc.get_objects() if type(each) is Generation]
    assert [(each.messages, each.prompt) for each in held] == [(None, None)]
    generates.link.say(generates.story.report(ipc.Delta(generates.link.sent[0].request_id, (5,), "length")))
    assert (await call)[0] == 200


async def test_the_texts_of_a_refused_call_are_refused_not_aborted(embeds: Desk) -> None:
    call = embeds.post(contract.PATH_EMBEDDINGS, {"input": [[5], [6], [7]]})
    await until(lambda: len(embeds.link.sent) == 3)
    done, lost, other = (message.request_id for message in embeds.link.sent)
    embeds.link.say(embeds.story.report(ipc.Delta(done, (), "stop", vector=b"\0" * 8)))
    embeds.link.say(ipc.Rejected(lost, "displaced", 1.0, "displaced by others"))
    assert (await call)[0] == 503
    assert embeds.outcomes() == {"stop": 1, "rejected": 2}
    assert embeds.story.value(f'{contract.REJECTIONS}{{reason="displaced"}}') == 2
    assert embeds.link.sent[3:] == [ipc.Cancel(other, "abort")]  # the engine works no more for the call
