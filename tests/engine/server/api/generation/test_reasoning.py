"""Reasoning over a socket: the engine writes `<think>…</think>` and an answer token by token, and each API shows both."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from shutil import copytree
from typing import Any, Literal

import pytest

from sluice import contract
from sluice_engine import messages
from sluice_engine.text import load_text_model
from tests.engine.server.api.generation.test_handlers import Desk, desk_of
from tests.engine.server.transport.test_connection_limits import until

QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": "2 + 2?"}]}
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}{# <think> #}"
THOUGHT, ANSWER = "Two and two make four.", "The answer is 4."


@pytest.fixture
def reasoner(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model's tokenizer with the template of a model that reasons."""
    folder = copytree(tiny_model, tmp_path / "reasoner")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture
async def desk(reasoner: Path) -> AsyncIterator[Desk]:
    async for desk in desk_of(reasoner, "generate"):
        yield desk


async def said(desk: Desk, folder: Path, path: str, body: dict[str, Any], text: str) -> bytes:
    """The response to a body while the engine writes `text`, one token per step."""
    call = desk.post(path, body)
    await until(lambda: any(isinstance(each, messages.Submit) for each in desk.client.sent) or call.done())
    (submit,) = [each for each in desk.client.sent if isinstance(each, messages.Submit)]
    tokens = load_text_model(folder).encode_plain(text)
    for place, token in enumerate(tokens):
        finish: Literal["stop"] | None = "stop" if place == len(tokens) - 1 else None
        desk.client.say(desk.story.report(messages.Delta(submit.request_id, (token,), finish)))
        stream = desk.client._streams.get(submit.request_id)
        await until(lambda stream=stream: stream is None or not stream._pending)  # type: ignore[misc]
    status, found = await call
    assert status == 200, found
    return found


def tokens_of(folder: Path, text: str) -> int:
    return len(load_text_model(folder).encode_plain(text))


def events(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.decode().splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


async def test_a_chat_has_its_reasoning_apart_and_counts_it(desk: Desk, reasoner: Path) -> None:
    text = f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"
    given = json.loads(await said(desk, reasoner, contract.PATH_CHAT_COMPLETIONS, QUESTION, text))
    message = given["choices"][0]["message"]
    assert (message["reasoning_content"].strip(), message["content"]) == (THOUGHT, ANSWER)
    counted = given["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert 0 < counted < given["usage"]["completion_tokens"]
    assert abs(counted - tokens_of(reasoner, f"<think>\n{THOUGHT}\n</think>")) <= 1  # a token may hold both


async def test_a_streamed_chat_says_the_same(desk: Desk, reasoner: Path) -> None:
    text = f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"
    body = QUESTION | {"stream": True, "stream_options": {"include_usage": True}}
    seen = list(events(await said(desk, reasoner, contract.PATH_CHAT_COMPLETIONS, body, text)))
    deltas = [event["choices"][0]["delta"] for event in seen if event["choices"]]
    assert "".join(each.get("reasoning_content") or "" for each in deltas).strip() == THOUGHT
    assert "".join(each.get("content") or "" for each in deltas) == ANSWER
    assert not any(each.get("content") and each.get("reasoning_content") for each in deltas)
    assert seen[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


async def test_responses_and_messages_show_it_as_their_own_items(desk: Desk, reasoner: Path) -> None:
    text = f"<think>{THOUGHT}</think>{ANSWER}"
    given = json.loads(await said(desk, reasoner, contract.PATH_RESPONSES, {"input": "2 + 2?"}, text))
    assert [item["type"] for item in given["output"]] == ["reasoning", "message"]
    assert given["output"][0]["content"][0]["text"] == THOUGHT
    assert given["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    desk.client.sent.clear()
    body = QUESTION | {"max_tokens": 40}
    written = json.loads(await said(desk, reasoner, contract.PATH_MESSAGES, body, text))
    assert [block["type"] for block in written["content"]] == ["thinking", "text"]
    assert (written["content"][0]["thinking"], written["content"][1]["text"]) == (THOUGHT, ANSWER)


async def test_reasoning_that_never_ends_is_reasoning(desk: Desk, reasoner: Path) -> None:
    given = json.loads(await said(desk, reasoner, contract.PATH_CHAT_COMPLETIONS, QUESTION, f"<think>{THOUGHT}"))
    message = given["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"] or "") == (THOUGHT, "")
    details = given["usage"]["completion_tokens_details"]
    assert details == {"reasoning_tokens": given["usage"]["completion_tokens"]}


async def test_an_answer_without_reasoning_counts_none(desk: Desk, reasoner: Path) -> None:
    given = json.loads(await said(desk, reasoner, contract.PATH_CHAT_COMPLETIONS, QUESTION, ANSWER))
    assert "reasoning_content" not in given["choices"][0]["message"]
    assert given["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}
