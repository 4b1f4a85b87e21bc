"""Coding agents' system messages, at a model whose chat template takes one, at the beginning, and turns that alternate."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice_engine.text.system_messages import with_one_system_message
from tests.engine.serving import CHAT, Served, serving

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
STRICT = """
{%- for message in messages %}
{%- if message['role'] == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning.') }}{% endif %}
{%- if not loop.first and message['role'] == loop.previtem['role'] %}{{ raise_exception('Roles must alternate.') }}{% endif %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\\n' }}
"""


@pytest.fixture(scope="module")
def strict(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("strict")
    model = shutil.copytree(tiny_model, folder / "model")
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": STRICT}))
    with serving(model, folder / "log") as server:
        yield server


def text_of(strict: Served, path: str, body: dict[str, Any]) -> tuple[str, int]:
    """The text of a greedy answer, and the number of tokens of its prompt."""
    given = strict.request("POST", path, {"model": "tiny", "temperature": 0} | body)
    assert given.status == 200, given.body
    answer = given.json()
    usage = answer["usage"]
    if path == CHAT:
        return answer["choices"][0]["message"]["content"], usage["prompt_tokens"]
    parts = answer["content"] if path == MESSAGES else answer["output"][0]["content"]
    return parts[0]["text"], usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)


def chat(*messages: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in messages], "max_tokens": 8}


def test_two_system_messages_at_the_beginning_are_one(strict: Served) -> None:
    sent = [
        {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
        for role, text in (("developer", "You are an agent."), ("developer", "Skills: none."), ("user", "Say hello"))
    ]
    expected = chat(("system", "You are an agent.\n\nSkills: none."), ("user", "Say hello"))
    found = text_of(strict, RESPONSES, {"input": sent, "max_output_tokens": 8})
    assert found == text_of(strict, CHAT, expected)


def test_a_system_message_behind_a_question_is_read_with_it(strict: Served) -> None:
    messages = [{"role": "user", "content": "Say hello"}, {"role": "system", "content": "Skills: none."}]
    expected = chat(("system", "You are an agent."), ("user", "Say hello\n\nSkills: none."))
    found = text_of(strict, MESSAGES, {"system": "You are an agent.", "messages": messages, "max_tokens": 8})
    assert found == text_of(strict, CHAT, expected)


def test_what_the_template_refuses_otherwise_is_still_a_400(strict: Served) -> None:
    given = strict.request("POST", CHAT, {"model": "tiny"} | chat(("user", "a"), ("user", "b")))
    assert (given.status, given.error["param"]) == (400, "messages")
    assert "Roles must alternate" in given.error["message"]


def said(text: str) -> list[dict[str, str]]:
    """One message per word: "s1" is a system message, "u1" one of the user, "a1" one of the assistant."""
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[word[0]], "content": word} for word in text.split()]


@pytest.mark.parametrize(
    ("given", "contents"),
    [
        ("s1 u1 a1 u2", None),
        ("u1", None),
        ("s1 s2 u1", ["s1\n\ns2", "u1"]),
        ("s1 u1 s2 a1", ["s1", "u1\n\ns2", "a1"]),
        ("u1 s1 u2", ["u1\n\ns1\n\nu2"]),
        ("u1 a1 s1 u2", ["u1", "a1", "s1\n\nu2"]),
        ("u1 u2 s1 a1 u3", ["u1", "u2\n\ns1", "a1", "u3"]),
    ],
)
def test_later_system_messages_become_text_of_the_user(given: str, contents: list[str] | None) -> None:
    messages = said(given)
    found = with_one_system_message(messages)
    assert (None if found is None else [each["content"] for each in found]) == contents
    assert messages == said(given)  # what was given stays as it was
