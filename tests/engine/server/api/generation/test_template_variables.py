"""Fields of a request that the chat template reads, over a socket: the prompt that the engine gets has their values."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import copytree
from typing import Any

import orjson
import pytest

from sluice import contract
from sluice_engine import messages
from sluice_engine.text import load_text_model
from tests.engine.server.api.generation.test_handlers import Desk, desk_of
from tests.engine.server.transport.test_connection_limits import until

TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "/{{ reasoning_effort }}/{{ verbosity }}/{{ enable_thinking }}/{{ style }}"
)
HELLO: list[dict[str, str]] = [{"role": "user", "content": "a"}]
KWARGS = {"style": "calm", "enable_thinking": False}


@pytest.fixture
def printer(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model's tokenizer with a template that prints its variables."""
    folder = copytree(tiny_model, tmp_path / "printer")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture
async def desk(printer: Path) -> AsyncIterator[Desk]:
    async for desk in desk_of(printer, "generate"):
        yield desk


@pytest.mark.parametrize(
    ("path", "fields", "prompt"),
    [
        (contract.PATH_CHAT_COMPLETIONS, {"messages": HELLO}, "a////"),
        (contract.PATH_CHAT_COMPLETIONS, {"messages": HELLO, "reasoning_effort": "high"}, "a/high///"),
        (contract.PATH_CHAT_COMPLETIONS, {"messages": HELLO, "reasoning_effort": "max"}, "a/xhigh///"),
        (contract.PATH_CHAT_COMPLETIONS, {"messages": HELLO, "verbosity": "low"}, "a//low//"),
        (contract.PATH_CHAT_COMPLETIONS, {"messages": HELLO, "chat_template_kwargs": KWARGS}, "a///False/calm"),
        (contract.PATH_RESPONSES, {"input": "a", "reasoning": {"effort": "low"}}, "a/low///"),
        (contract.PATH_RESPONSES, {"input": "a", "text": {"verbosity": "high"}}, "a//high//"),
        (contract.PATH_RESPONSES, {"input": "a", "chat_template_kwargs": KWARGS}, "a///False/calm"),
        (contract.PATH_MESSAGES, {"messages": HELLO, "max_tokens": 2, "output_config": {"effort": "max"}}, "a/xhigh///"),
        (contract.PATH_MESSAGES, {"messages": HELLO, "max_tokens": 2, "thinking": {"type": "disabled"}}, "a///False/"),
    ],
)  # fmt: skip
async def test_the_prompt_has_the_variables_of_the_request(
    desk: Desk, printer: Path, path: str, fields: dict[str, Any], prompt: str
) -> None:
    call = desk.post(path, fields)
    await until(lambda: bool(desk.client.sent) or call.done())
    (submit,) = desk.client.sent
    assert load_text_model(printer).decode(submit.prompt_token_ids) == prompt
    desk.client.say(desk.story.report(messages.Delta(submit.request_id, (5,), "length")))
    assert (await call)[0] == 200


async def test_tokenize_renders_the_same_prompt(desk: Desk, printer: Path) -> None:
    status, body = await desk.post(contract.PATH_TOKENIZE, {"messages": HELLO, "chat_template_kwargs": KWARGS})
    assert status == 200
    assert load_text_model(printer).decode(orjson.loads(body)["tokens"]) == "a///False/calm"


async def test_a_template_that_loops_without_output_is_a_400_and_leaves_the_event_loop_to_others(
    tiny_model: Path, tmp_path: Path
) -> None:
    folder = copytree(tiny_model, tmp_path / "endless")
    (folder / "chat_template.jinja").write_text(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    )
    async for desk in desk_of(folder, "generate"):
        for path in (contract.PATH_CHAT_COMPLETIONS, contract.PATH_TOKENIZE):
            began = time.thread_time()
            status, body = await desk.post(path, {"messages": HELLO})
            assert status == 400
            assert "takes longer than 1 s of processor time" in orjson.loads(body)["error"]["message"]
            assert time.thread_time() - began < 0.5  # the event loop's part of a second of processor time
        assert desk.client.sent == []
        assert [desk.serving.threads.submit(lambda: 1).result(timeout=60) for _ in range(4)] == [1] * 4
