"""The Messages API by Anthropic's own client: text, events, tools, counts, keys, and errors in its own shape."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from sluice_engine.server.api.anthropic.encoder import MessageEncoder
from sluice_engine.server.api.generation.sse import Head
from sluice_engine.server.usage import Usage
from tests.engine.serving import CHAT, Served

PATH = "/v1/messages"
GREEDY = {"temperature": 0}
QUESTION: list[Any] = [{"role": "user", "content": "What is a KV cache?"}]
WEATHER: Any = {
    "name": "weather", "description": "Weather of a city.",
    "input_schema": {
        "type": "object", "properties": {"city": {"enum": ["Bern", "Basel"]}}, "required": ["city"], "additionalProperties": False,
    },
}  # fmt: skip


def client_of(served: Served) -> Anthropic:
    return Anthropic(
        base_url=f"http://127.0.0.1:{served.port}", api_key=served.key or "none", max_retries=0, timeout=120
    )


@pytest.fixture
def client(served: Served) -> Iterator[Anthropic]:
    with client_of(served) as client:
        yield client


def test_a_text_is_that_of_the_chat_with_usage(client: Anthropic, served: Served) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *QUESTION]
    with served.client() as other:
        chat = other.chat.completions.create(model="tiny", messages=messages, temperature=0, max_tokens=60)
    given = client.messages.create(
        model="tiny", messages=QUESTION, system="Be brief.", max_tokens=60, extra_body=GREEDY
    )
    (block,) = given.content
    assert block.type == "text" and block.text == chat.choices[0].message.content
    assert (given.role, given.stop_reason, given.type) == ("assistant", "end_turn", "message")
    assert chat.usage is not None
    assert given.usage.input_tokens + (given.usage.cache_read_input_tokens or 0) == chat.usage.prompt_tokens
    assert given.usage.output_tokens == chat.usage.completion_tokens


def test_a_stream_adds_up_to_the_message(client: Anthropic) -> None:
    whole = client.messages.create(model="tiny", messages=QUESTION, max_tokens=60, extra_body=GREEDY)
    with client.messages.stream(model="tiny", messages=QUESTION, max_tokens=60, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert whole.content[0].type == "text" and text == whole.content[0].text
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", whole.usage.output_tokens)
    kinds = [event.type for event in client.messages.create(model="tiny", messages=QUESTION, max_tokens=3, stream=True)]
    assert kinds[0] == "message_start" and kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_an_answer_that_is_cut_says_so(client: Anthropic) -> None:
    given = client.messages.create(model="tiny", messages=QUESTION, max_tokens=2, extra_body=GREEDY)
    assert given.stop_reason == "max_tokens" and given.usage.output_tokens == 2


def test_a_stop_sequence_is_named(client: Anthropic) -> None:
    whole = client.messages.create(model="tiny", messages=QUESTION, max_tokens=60, extra_body=GREEDY).content[0]
    assert whole.type == "text"
    stop = whole.text[10:14]
    fields: Any = {
        "model": "tiny", "messages": QUESTION, "max_tokens": 60, "stop_sequences": [stop, "never"], "extra_body": GREEDY,
    }  # fmt: skip
    given = client.messages.create(**fields)
    assert (given.stop_reason, given.stop_sequence) == ("stop_sequence", stop)
    with client.messages.stream(**fields) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", stop)


def test_many_stop_sequences_are_allowed_up_to_a_stated_number(client: Anthropic, served: Served) -> None:
    whole = client.messages.create(model="tiny", messages=QUESTION, max_tokens=60, extra_body=GREEDY).content[0]
    assert whole.type == "text"
    unused = [f"\n\n{name}:" for name in range(63)]
    given = client.messages.create(
        model="tiny", messages=QUESTION, max_tokens=60, stop_sequences=[*unused, whole.text[10:14]], extra_body=GREEDY
    )
    assert (given.stop_reason, given.stop_sequence) == ("stop_sequence", whole.text[10:14])
    with pytest.raises(anthropic.BadRequestError, match="stop_sequences must be a string or a list of 1 to 64 strings"):
        client.messages.create(model="tiny", messages=QUESTION, max_tokens=1, stop_sequences=["a"] * 65)
    chat = {"model": "tiny", "messages": QUESTION, "stop": unused[:5]}
    assert served.request("POST", CHAT, chat).error["param"] == "stop"  # OpenAI's limit


@pytest.mark.parametrize(
    "choice", [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "weather"}]
)
def test_a_call_and_its_result_go_through_the_conversation(client: Anthropic, choice: Any) -> None:
    fields: dict[str, Any] = {
        "model": "tiny",
        "messages": QUESTION,
        "extra_body": GREEDY,
        "max_tokens": 80,
        "tools": [WEATHER],
        "tool_choice": choice,
    }
    given = client.messages.create(**fields)
    (call,) = given.content
    assert call.type == "tool_use" and call.name == "weather" and given.stop_reason == "tool_use"
    assert call.input["city"] in ("Bern", "Basel")
    with client.messages.stream(**fields) as stream:
        (streamed,) = stream.get_final_message().content
    assert streamed.type == "tool_use" and streamed.input == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "21 degrees"}]}
    history: list[Any] = [
        *QUESTION, {"role": "assistant", "content": given.model_dump()["content"]},
        {"role": "user", "content": [result, {"type": "text", "text": "Thanks."}]},
    ]  # fmt: skip
    after = client.messages.create(model="tiny", messages=history, tools=[WEATHER], max_tokens=4)
    assert after.usage.input_tokens > 0


def test_an_output_follows_its_schema(client: Anthropic) -> None:
    config: Any = {"format": {"type": "json_schema", "schema": {"enum": ["left", "right"]}}}
    given = client.messages.create(model="tiny", messages=QUESTION, max_tokens=20, output_config=config)
    (block,) = given.content
    assert block.type == "text" and json.loads(block.text) in ("left", "right")


def test_tokens_are_counted_as_they_are_used(client: Anthropic) -> None:
    counted = client.messages.count_tokens(model="tiny", messages=QUESTION, tools=[WEATHER]).input_tokens
    used = client.messages.create(model="tiny", messages=QUESTION, tools=[WEATHER], max_tokens=1).usage
    assert counted == used.input_tokens + (used.cache_read_input_tokens or 0)


def test_reasoning_is_a_block_of_its_own() -> None:
    encoder = MessageEncoder(Head("msg_1", 1, "m"), Usage(prompt=3))
    written = encoder.deltas([{"reasoning_content": "I think."}, {"content": "4"}], 0, None) + encoder.finish("stop")
    events = [json.loads(each.partition(b"data: ")[2]) for each in written.split(b"\n\n") if each]
    assert [(event["type"], event["index"]) for event in events] == [
        ("content_block_start", 0), ("content_block_delta", 0), ("content_block_stop", 0),
        ("content_block_start", 1), ("content_block_delta", 1), ("content_block_stop", 1),
    ]  # fmt: skip
    assert events[0]["content_block"]["type"] == "thinking" and events[3]["content_block"]["type"] == "text"


def test_a_key_is_taken_from_the_clients_own_header(served_with_keys: Served) -> None:
    with client_of(served_with_keys) as client:
        assert client.messages.create(model="tiny", messages=QUESTION, max_tokens=2).content
    with (
        Anthropic(base_url=f"http://127.0.0.1:{served_with_keys.port}", api_key="wrong", max_retries=0) as client,
        pytest.raises(anthropic.AuthenticationError),
    ):
        client.messages.create(model="tiny", messages=QUESTION, max_tokens=2)


UNIQUE = {"type": "array", "uniqueItems": True}
USE: Any = {"type": "tool_use", "id": "1", "name": "weather", "input": {}}
RESULT: Any = {"type": "tool_result", "tool_use_id": "1", "content": "x"}
BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"max_tokens": None}, 400, "max_tokens"),
    ({"messages": []}, 400, "messages"),
    ({"messages": [{"role": "root", "content": "a"}]}, 400, "messages[0]"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        400,
        "messages[0].content[0].type",
    ),
    ({"messages": [{"role": "user", "content": []}]}, 400, "messages[0].content"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 400, "tools[0].type"),
    ({"tools": [WEATHER], "tool_choice": {"type": "sometimes"}}, 400, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "rm.function"}}, 400, "tool_choice names 'rm.function'"),
    ({"tool_choice": {"type": "any"}}, 400, "tool_choice asks for a call and needs tools"),
    ({"tool_choice": {"type": "tool", "name": "weather"}, "tools": []}, 400, "tool_choice asks for a call and needs tools"),
    ({"tools": [WEATHER | {"name": "a b"}]}, 400, "tools[0].name must"),
    ({"tools": [WEATHER | {"input_schema": []}]}, 400, "tools[0].input_schema must"),
    ({"tools": [WEATHER | {"strict": 1}]}, 400, "tools[0].strict must"),
    ({"tools": [WEATHER, WEATHER]}, 400, "tools names 'weather' twice"),
    ({"output_config": {"format": {"type": "json_schema", "schema": UNIQUE}}}, 400, "output_config.format.schema cannot"),
    ({"output_config": {"format": {"type": "json_schema", "schema": 5}}}, 400, "output_config.format.schema must"),
    ({"output_config": {"effort": "extreme"}}, 400, "output_config.effort must"),
    ({"metadata": {"user_id": "a" * 2000}}, 400, "metadata.user_id must"),
    ({"max_tokens": 100_000}, 400, "exceed context limit"),
    ({"messages": [{"role": "system", "content": None}]}, 400, "messages[0].content must"),
    ({"system": "a", "messages": [*QUESTION, {"role": "assistant", "content": [USE | {"name": 5}]}]}, 400, "messages[1].content[0].name must"),
    ({"system": "a", "messages": [*QUESTION, {"role": "assistant", "content": [USE | {"input": []}]}]}, 400, "messages[1].content[0].input must"),
    ({"system": "a", "messages": [{"role": "user", "content": [RESULT, RESULT | {"tool_use_id": 5}]}]}, 400, "messages[0].content[1].tool_use_id must"),
    ({"messages": [{"role": "assistant", "content": [USE] * 129}]}, 400, "messages[0].content must"),
    ({"thinking": True}, 400, "thinking"),
    ({"temperature": 9}, 400, "temperature"),
    ({"no_such_field": 1}, 400, "no_such_field"),
    ({"model": "another"}, 404, "model"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "status", "words"), BAD, ids=[words for _, _, words in BAD])
def test_an_error_has_the_apis_own_shape(served: Served, fields: dict[str, Any], status: int, words: str) -> None:
    given = served.request("POST", PATH, {"model": "tiny", "messages": QUESTION, "max_tokens": 2} | fields)
    body = given.json()
    assert (given.status, body["type"]) == (status, "error")
    assert body["error"]["type"] == {400: "invalid_request_error", 404: "not_found_error"}[status]
    assert words in body["error"]["message"]
    assert not any(
        name in body["error"]["message"] for name in ("tool_calls", "parameters", "response_format", "tool_call_id")
    )
    assert served.request("GET", PATH).json()["type"] == "error"


def test_an_answer_carries_the_request_id_that_the_client_looks_for(client: Anthropic) -> None:
    answer = client.messages.with_raw_response.create(model="tiny", messages=QUESTION, max_tokens=1)
    assert answer.headers["request-id"] == answer.headers["x-request-id"] == answer.parse()._request_id


def test_the_models_are_listed_and_read(client: Anthropic) -> None:
    page = client.models.list()
    assert [each.id for each in page] == ["tiny"] and not page.has_next_page()
    model = client.models.retrieve("tiny")
    assert (model.type, model.display_name, model.lifecycle) == ("model", "tiny", "active")
    assert model.created_at.tzinfo is not None and model.max_input_tokens
    assert model == page.data[0]


def test_a_thread_is_refused_so_that_the_client_goes_on_without_it(client: Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="thread is not supported") as caught:
        client.messages.create(model="tiny", messages=QUESTION, max_tokens=1, extra_body={"thread": {"type": "create"}})
    body: Any = caught.value.body
    assert body["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
