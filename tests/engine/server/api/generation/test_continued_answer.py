"""An answer that goes on from the assistant's last message: vLLM's fields, `prefix` of Mistral and DeepSeek, Anthropic's way."""

from typing import Any

import pytest

from sluice import contract
from tests.engine.serving import CHAT, Served

BEGUN = "A KV cache is "
ASKED = [{"role": "user", "content": "What is a KV cache?"}]
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 12}


def conversation(**more: Any) -> list[Any]:
    return [*ASKED, {"role": "assistant", "content": BEGUN} | more]


def rest_by_tokens(served: Served) -> tuple[str, int]:
    """What a completion of the same tokens says, and their number."""
    asked = {"messages": conversation(), "continue_final_message": True}
    tokens = served.request("POST", contract.PATH_TOKENIZE, asked).json()["tokens"]
    given = served.request("POST", contract.PATH_COMPLETIONS, GREEDY | {"prompt": tokens}).json()
    return given["choices"][0]["text"], len(tokens)


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": conversation(), "continue_final_message": True},
        {"messages": conversation(), "continue_final_message": True, "add_generation_prompt": False},
        {"messages": conversation(prefix=True)},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_the_rest_of_an_answer_is_that_of_the_same_tokens(served: Served, fields: Any, stream: bool) -> None:
    expected, tokens = rest_by_tokens(served)
    with served.client() as client:
        asked: Any = {"model": "tiny", "messages": fields["messages"], "temperature": 0, "max_tokens": 12}
        more = {name: value for name, value in fields.items() if name != "messages"}
        if stream:
            events = client.chat.completions.create(**asked, extra_body=more, stream=True)
            text = "".join(event.choices[0].delta.content or "" for event in events)
        else:
            given = client.chat.completions.create(**asked, extra_body=more)
            text = given.choices[0].message.content
            assert given.usage is not None and given.usage.prompt_tokens == tokens
    assert text == expected and not text.startswith(BEGUN)


def test_anthropics_answer_goes_on_from_a_last_text_of_the_assistant(served: Served) -> None:
    expected, tokens = rest_by_tokens(served)
    asked = GREEDY | {"messages": conversation()}
    given = served.request("POST", contract.PATH_MESSAGES, asked).json()
    assert given["content"][0]["text"] == expected
    counted = served.request("POST", contract.PATH_COUNT_TOKENS, {"model": "tiny", "messages": conversation()}).json()
    assert counted["input_tokens"] == tokens
    asked_again = GREEDY | {"system": [], "messages": [*ASKED, {"role": "assistant", "content": []}]}
    assert served.request("POST", contract.PATH_MESSAGES, asked_again).status == 200


def test_without_a_generation_prompt_the_prompt_ends_with_the_last_message(served: Served) -> None:
    counts = [
        served.request("POST", contract.PATH_TOKENIZE, {"messages": ASKED} | more).json()["tokens"]
        for more in ({}, {"add_generation_prompt": False})
    ]
    assert counts[0][: len(counts[1])] == counts[1] and len(counts[1]) < len(counts[0])
    given = served.request("POST", CHAT, GREEDY | {"messages": ASKED, "add_generation_prompt": False}).json()
    assert given["usage"]["prompt_tokens"] == len(counts[1])


CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"continue_final_message": True}, "continue_final_message"),
        ({"messages": conversation(), "continue_final_message": True, "add_generation_prompt": True}, "add_generation_prompt"),
        ({"messages": conversation(tool_calls=[CALL]), "continue_final_message": True}, "continue_final_message"),
        ({"messages": [ASKED[0] | {"prefix": True}]}, "messages[0].prefix"),
        ({"messages": conversation(prefix="yes")}, "messages[1].prefix"),
        ({"continue_final_message": "yes"}, "continue_final_message"),
        ({"messages": [{"role": "user", "content": [{"type": "refusal", "refusal": "No."}]}]}, "messages[0].content[0]"),
    ],
)  # fmt: skip
def test_what_cannot_go_on_is_named(served: Served, fields: dict[str, Any], param: str) -> None:
    given = served.request("POST", CHAT, GREEDY | {"messages": ASKED} | fields)
    assert (given.status, given.error["param"]) == (400, param)


def test_a_refusal_that_comes_back_is_the_text_of_its_message(served: Served) -> None:
    forms = (
        {"content": "No."},
        {"content": None, "refusal": "No."},
        {"content": [{"type": "refusal", "refusal": "No."}]},
    )
    counts = [
        served.request("POST", contract.PATH_TOKENIZE, {"messages": [*ASKED, {"role": "assistant"} | form]}).json()[
            "tokens"
        ]
        for form in forms
    ]
    assert counts[0] == counts[1] == counts[2]
