"""Thoughts of earlier answers, over a socket: the prompt has them where the model's chat template reads them."""

from collections.abc import AsyncIterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from sluice import contract
from sluice_engine import messages
from sluice_engine.text import load_text_model
from tests.engine.server.api.generation.test_handlers import Desk, desk_of
from tests.engine.server.transport.test_connection_limits import until

# Qwen 3's way: the field, else what is before the closing mark.
TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}:"
    "{% if m.FIELD is string %}({{ m.FIELD }}){% elif '</think>' in m.content %}{{ raise_exception('unsplit') }}{% endif %}"
    "{{ m.content }}{% for c in m.tool_calls %}!{{ c.function.name }}{% endfor %};{% endfor %}"
)
FIELDS = ("reasoning_content", "reasoning")
ASK: dict[str, Any] = {"role": "user", "content": "a"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
THINKING, SECRET = {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "redacted_thinking", "data": "x"}
USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
USED = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]}
ITEM: dict[str, Any] = {
    "type": "reasoning",
    "id": "r",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "hm"}],
}
SUMMARY = {
    "type": "reasoning",
    "id": "r",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "x",
}
CALLED = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "ok"}


def chat(*spoken: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return contract.PATH_CHAT_COMPLETIONS, {"messages": [ASK, *spoken]}


def message(*content: Any, edits: Any = None) -> tuple[str, dict[str, Any]]:
    spoken = [
        ASK,
        *({"role": "assistant", "content": blocks} for blocks in content),
        *([USED] if USE in content[-1] else ()),
    ]
    more = {} if edits is None else {"context_management": {"edits": [{"type": "clear_thinking_20251015"} | edits]}}
    return contract.PATH_MESSAGES, {"messages": spoken, "max_tokens": 2} | more


def response(*items: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return contract.PATH_RESPONSES, {"input": [ASK, *items]}


def answer(content: str | None = "b", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content} | more


TEXT = {"type": "text", "text": "b"}
CASES: list[tuple[tuple[str, dict[str, Any]], str]] = [
    (chat(answer(reasoning_content="hm")), "u:a;a:(hm)b;"),
    (chat(answer(reasoning="hm")), "u:a;a:(hm)b;"),
    (chat(answer(reasoning="hm", reasoning_content="hm")), "u:a;a:(hm)b;"),
    (chat(answer(reasoning=None, reasoning_content="")), "u:a;a:b;"),
    (chat(answer(None, reasoning="hm"), ASK), "u:a;a:(hm);u:a;"),  # it was cut within its thoughts
    (chat(answer(None, reasoning="hm", tool_calls=[CALL]), RESULT), "u:a;a:(hm)!f;t:ok;"),
    (chat(answer("<think>\nhm\n</think>\n\nb")), "u:a;a:(hm)b;"),
    (chat(answer("hm\n</think>\nb")), "u:a;a:(hm)b;"),
    (chat(answer("<think>\n\n</think>\n\nb")), "u:a;a:b;"),
    (chat(answer("<think>b")), "u:a;a:<think>b;"),
    (chat({"role": "user", "content": "b", "reasoning": "hm"}), "u:a;u:b;"),
    (message([THINKING, TEXT]), "u:a;a:(hm)b"),  # the answer goes on from a last text
    (message([THINKING, SECRET, USE]), "u:a;a:(hm)!f;t:ok;"),
    (message([THINKING]), "u:a;a:(hm);"),
    (message([THINKING, TEXT], [THINKING, TEXT], edits={}), "u:a;a:b;a:(hm)b"),
    (message([THINKING, TEXT], [THINKING, TEXT], edits={"keep": {"type": "thinking_turns", "value": 9}}), "u:a;a:(hm)b;a:(hm)b"),
    (message([THINKING, TEXT], [THINKING, TEXT], edits={"keep": "all"}), "u:a;a:(hm)b;a:(hm)b"),
    (response(ITEM, answer()), "u:a;a:(hm)b;"),
    (response(SUMMARY, CALLED, OUTPUT), "u:a;a:(hm)!f;t:ok;"),
    (response(ITEM, answer(), CALLED, OUTPUT, ITEM, answer()), "u:a;a:(hm)b!f;t:ok;a:(hm)b;"),
    (response(CALLED, ITEM, CALLED | {"call_id": "c2"}, OUTPUT), "u:a;a:(hm)!f!f;t:ok;"),
    (response(SUMMARY | {"summary": []}, answer()), "u:a;a:b;"),
    (response(ITEM, ASK), "u:a;a:(hm);u:a;"),
]  # fmt: skip


@pytest.fixture(params=FIELDS)
def thinker(request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model's tokenizer with a template that reads thoughts, tools and the marks of a reasoning model."""
    folder = copytree(tiny_model, tmp_path / "thinker")
    marks = "{# <think> <tool_call> tools #}"
    (folder / "chat_template.jinja").write_text(TEMPLATE.replace("FIELD", request.param) + marks)
    return folder


async def _prompt(desk: Desk, folder: Path, path: str, body: dict[str, Any]) -> str:
    call = desk.post(path, body)
    await until(lambda: bool(desk.client.sent) or call.done())
    assert desk.client.sent, await call
    (submit,) = [each for each in desk.client.sent if isinstance(each, messages.Submit)]
    desk.client.say(desk.story.report(messages.Delta(submit.request_id, (5,), "length")))
    assert (await call)[0] == 200
    desk.client.sent.clear()
    return load_text_model(folder).decode(submit.prompt_token_ids)


@pytest.fixture
async def desk(thinker: Path) -> AsyncIterator[Desk]:
    async for desk in desk_of(thinker, "generate"):
        yield desk


async def test_the_template_gets_the_thoughts_of_every_api(desk: Desk, thinker: Path) -> None:
    for (path, body), prompt in CASES:
        assert await _prompt(desk, thinker, path, body) == prompt, body


async def test_control_tokens_in_thoughts_stay_text(desk: Desk, thinker: Path) -> None:
    path, body = chat(answer(reasoning="<|im_end|>"))
    call = desk.post(path, body)
    await until(lambda: bool(desk.client.sent) or call.done())
    (submit,) = desk.client.sent
    special = set(load_text_model(thinker).stop_token_ids)
    assert special.isdisjoint(submit.prompt_token_ids)
    desk.client.say(desk.story.report(messages.Delta(submit.request_id, (5,), "length")))
    assert (await call)[0] == 200


async def test_a_template_without_tools_or_thoughts_gets_neither(tiny_model: Path, tmp_path: Path) -> None:
    folder = copytree(tiny_model, tmp_path / "plain")
    for source, prompt in (
        ("{% for m in messages %}{{ m | length }}{{ m.content }};{% endfor %}", "2a;2b;"),
        ("{% for m in messages %}{{ m['reasoning'] }}{{ m.content }};{% endfor %}", "a;hmb;"),
    ):
        (folder / "chat_template.jinja").write_text(source)
        async for desk in desk_of(folder, "generate"):
            assert await _prompt(desk, folder, *chat(answer(reasoning_content="hm"))) == prompt


BAD: list[tuple[tuple[str, dict[str, Any]], str]] = [
    (chat(answer(reasoning_content=["hm"])), "messages[1].reasoning_content"),
    (chat(answer(None, reasoning="")), "messages[1].content"),
    (chat({"role": "user", "content": None, "reasoning": "hm"}), "messages[1].content"),
    (message([{"type": "thinking"}]), "messages[1].content[0].thinking"),
    (message([THINKING], edits={"keep": "none"}), "context_management.edits[0].keep"),
    (message([THINKING], edits={"keep": {"type": "thinking_turns", "value": True}}), "context_management.edits[0].keep"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "words"), BAD, ids=[words for _, words in BAD])
async def test_bad_thoughts_are_a_400_that_names_them(
    desk: Desk, request_: tuple[str, dict[str, Any]], words: str
) -> None:
    status, body = await desk.post(*request_)
    assert status == 400 and words in body.decode()
