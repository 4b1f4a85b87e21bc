"""The Responses API by the official client: text, events, instructions, tools, structured output, and what is refused."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from openai import BadRequestError, OpenAI
from pydantic import BaseModel

from sluice_engine.server.api.generation.sse import Head
from sluice_engine.server.api.responses.encoder import ResponsesFormat
from sluice_engine.server.api.responses.items import Items
from sluice_engine.server.usage import Usage
from tests.engine.serving import Served

PATH = "/v1/responses"
QUESTION = "What is a KV cache?"
WEATHER: Any = {
    "type": "function", "name": "weather", "description": "Weather of a city.", "strict": True,
    "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Bern", "Basel"]}}, "required": ["city"], "additionalProperties": False,
    },
}  # fmt: skip


class Verdict(BaseModel):
    """What `parse` returns."""

    verdict: Literal["yes", "no"]
    why: Literal["because", "so"]


@pytest.fixture
def client(served: Served) -> Iterator[OpenAI]:
    with served.client() as client:
        yield client


def test_a_text_is_that_of_the_chat_with_usage_and_the_requests_fields(client: OpenAI) -> None:
    chat = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}],
        temperature=0,
    )
    given = client.responses.create(
        model="tiny", input=QUESTION, instructions="Be brief.", temperature=0, metadata={"team": "a"}, store=False
    )
    assert given.output_text == chat.choices[0].message.content
    assert (given.status, given.instructions, given.metadata, given.error) == (
        "completed",
        "Be brief.",
        {"team": "a"},
        None,
    )
    assert given.usage is not None and chat.usage is not None
    assert given.usage.input_tokens == chat.usage.prompt_tokens
    assert given.usage.output_tokens == chat.usage.completion_tokens
    assert given.usage.input_tokens_details.cache_write_tokens == 0  # the client's type requires it
    assert given.id.startswith("resp_") and str(given.output[0].id).startswith("msg_")


def test_a_streams_events_come_in_order_and_add_up_to_the_response(client: OpenAI) -> None:
    whole = client.responses.create(model="tiny", input=QUESTION, temperature=0)
    events = list(client.responses.create(model="tiny", input=QUESTION, temperature=0, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    ]  # fmt: skip
    assert kinds[-4:] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text
    with client.responses.stream(model="tiny", input=QUESTION, temperature=0) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == text


def test_logprobs_are_those_of_the_chat_where_they_are_included(client: OpenAI) -> None:
    chat = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=8, logprobs=True,
        top_logprobs=2,
    ).choices[0].logprobs  # fmt: skip
    assert chat is not None and chat.content is not None
    expected = [(each.token, len(each.top_logprobs)) for each in chat.content]
    fields: Any = {
        "model": "tiny", "input": QUESTION, "temperature": 0, "max_output_tokens": 8, "top_logprobs": 2,
        "include": ["message.output_text.logprobs"],
    }  # fmt: skip
    events = list(client.responses.create(**fields, stream=True))
    assert events[-1].type == "response.incomplete"
    streamed = [each for event in events if event.type == "response.output_text.delta" for each in event.logprobs]
    assert [(each.token, len(each.top_logprobs or [])) for each in streamed] == expected
    (done,) = [event for event in events if event.type == "response.output_text.done"]
    assert [each.token for each in done.logprobs] == [token for token, _ in expected]
    for given in (events[-1].response, client.responses.create(**fields)):
        (item,) = given.output
        assert item.type == "message" and item.content[0].type == "output_text"
        assert [(each.token, len(each.top_logprobs)) for each in item.content[0].logprobs or []] == expected
    plain = client.responses.create(**fields | {"include": [], "top_logprobs": None}).output[0]
    assert plain.type == "message" and plain.content[0].type == "output_text" and plain.content[0].logprobs == []


def test_the_logprobs_of_reasoning_and_calls_are_left_out() -> None:
    tokens = [{"token": word, "bytes": list(word.encode())} for word in ("hm", "It", " is", "{}")]
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    message = {"reasoning_content": "hm", "content": "It is", "tool_calls": [call]}
    choice = {"message": message, "finish_reason": "tool_calls", "logprobs": {"content": tokens}}
    usage, head = Usage(1, completion=4, reasoning=1), Head("resp_1", 1, "m")
    whole = json.loads(ResponsesFormat({}).complete(head, [choice], usage))
    encoder = ResponsesFormat({}).encoder(head, 1, usage, include_usage=True, continuous=False)
    encoder.deltas([{"reasoning_content": "hm"}], 0, {"content": tokens[:1]})
    encoder.deltas([{"content": "It"}], 0, {"content": tokens[1:2]})
    encoder.deltas([{"content": " is"}], 0, {"content": tokens[2:3]})
    encoder.deltas([{"tool_calls": [call | {"index": 0}]}], 0, {"content": tokens[3:]})
    encoder.finish("tool_calls")
    streamed = json.loads(encoder.closing(usage).partition(b"data: ")[2])["response"]
    for response in (whole, streamed):
        reasoning, text, _ = response["output"]
        assert "logprobs" not in reasoning["content"][0]
        assert text["content"][0]["logprobs"] == tokens[1:3]


def test_the_defaults_of_newer_clients_are_accepted(client: OpenAI) -> None:
    reasoning: Any = {"effort": "max", "context": "auto", "mode": "standard", "summary": "auto"}
    tool = WEATHER | {"output_schema": None, "async": False, "defer_loading": False}
    given = client.responses.create(
        model="tiny", input=QUESTION, reasoning=reasoning, tools=[tool], max_output_tokens=2
    )
    assert given.reasoning is not None and given.reasoning.effort == "max"


def test_a_reference_to_a_stored_item_is_refused_with_what_to_send(served: Served) -> None:
    body = {"model": "tiny", "input": [{"role": "user", "content": "a"}, {"type": "item_reference", "id": "msg_1"}]}
    message = served.request("POST", PATH, body).error["message"]
    assert message.startswith("input[1] refers to an item of an earlier response, and this server stores none.")
    assert message.endswith("store: false.")


def test_an_answer_that_is_cut_is_incomplete(client: OpenAI) -> None:
    given = client.responses.create(model="tiny", input=QUESTION, temperature=0, max_output_tokens=2)
    assert given.status == "incomplete" and given.incomplete_details is not None
    assert given.incomplete_details.reason == "max_output_tokens"
    events = list(client.responses.create(model="tiny", input=QUESTION, max_output_tokens=2, stream=True))
    assert events[-1].type == "response.incomplete"


def test_a_call_and_its_result_go_through_the_conversation(client: OpenAI) -> None:
    given = client.responses.create(
        model="tiny", input=QUESTION, temperature=0, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False
    )
    (call,) = given.output
    assert call.type == "function_call" and call.name == "weather"
    assert json.loads(call.arguments)["city"] in ("Bern", "Basel")
    history: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
        call.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"},
    ]
    after = client.responses.create(model="tiny", input=history, temperature=0, tools=[WEATHER], max_output_tokens=8)
    assert after.usage is not None and given.usage is not None
    assert after.usage.input_tokens > given.usage.input_tokens
    choice: Any = {"type": "function", "name": "weather"}
    stream = client.responses.create(
        model="tiny", input=QUESTION, temperature=0, tools=[WEATHER], tool_choice=choice, stream=True
    )
    written, done = "", ""
    for event in stream:
        if event.type == "response.function_call_arguments.delta":
            written += event.delta
        if event.type == "response.function_call_arguments.done":
            done = event.arguments
    assert written == done and json.loads(done)["city"] in ("Bern", "Basel")


def test_the_clients_own_parsing_returns_objects(client: OpenAI) -> None:
    given = client.responses.parse(model="tiny", input=QUESTION, temperature=0, text_format=Verdict)
    assert isinstance(given.output_parsed, Verdict)


def test_reasoning_is_an_item_of_its_own() -> None:
    items = Items()
    events = list(items.add([{"reasoning_content": "I "}, {"reasoning_content": "think."}, {"content": "4"}]))
    events += items.close()
    assert [item["type"] for item in items.done] == ["reasoning", "message"]
    assert items.done[0]["content"] == [{"type": "reasoning_text", "text": "I think."}]
    assert [event["output_index"] for event in events] == sorted(event["output_index"] for event in events)


ASKED: Any = [{"role": "user", "content": "a"}]
CALL: Any = {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": [5]}, "input[0]"),
    ({"input": [{"role": "root", "content": "a"}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "c"}, "conversation"),
    ({"background": True}, "background"),
    ({"truncation": "middle"}, "truncation"),
    ({"instructions": 5}, "instructions"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
    ({"tools": [WEATHER | {"parameters": []}]}, "tools[0].parameters"),
    ({"tools": [WEATHER | {"parameters": {"type": "object", "not": {}}}]}, "tools[0].parameters"),
    ({"tools": [WEATHER | {"extra": 1}]}, "tools[0].extra"),
    ({"instructions": "a", "input": [*ASKED, CALL | {"arguments": 5}]}, "input[1].arguments"),
    ({"instructions": "a", "input": [*ASKED, CALL, CALL | {"arguments": None}]}, "input[2].arguments"),
    ({"instructions": "a", "input": [*ASKED, CALL | {"name": None}]}, "input[1].name"),
    ({"input": [CALL, CALL, {"type": "function_call_output", "call_id": 5, "output": "x"}]}, "input[2].call_id"),
    ({"max_output_tokens": 100_000}, "max_output_tokens"),
    ({"input": "many words " * 3000}, "input"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "rm"}}, "tool_choice"),
    ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "array", "uniqueItems": True}}}}, "text.format.schema"),
    ({"text": {"format": {"type": "yaml"}}}, "text.format"),
    ({"text": {"verbosity": "loud"}}, "text.verbosity"),
    ({"reasoning": {"effort": "extreme"}}, "reasoning.effort"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"temperature": 9}, "temperature"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"reasoning": {"context": "all_turns"}}, "reasoning.context"),
    ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
    ({"tools": [WEATHER | {"output_schema": {}}]}, "tools[0].output_schema"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"no_such_field": 1}, "no_such_field"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), BAD, ids=[f"{param}-{place}" for place, (_, param) in enumerate(BAD)])
def test_a_bad_field_is_named_as_the_client_wrote_it(served: Served, fields: dict[str, Any], param: str) -> None:
    given = served.request("POST", PATH, {"model": "tiny", "input": "a", "max_output_tokens": 2} | fields)
    assert (given.status, given.error["param"]) == (400, param)
    assert "messages" not in given.error["message"]
    assert "max_completion_tokens" not in given.error["message"]


def test_what_an_error_quotes_is_what_the_client_sent(served: Served) -> None:
    name = "messages.function"
    fields = {"tools": [WEATHER], "tool_choice": {"type": "function", "name": name}}
    given = served.request("POST", PATH, {"model": "tiny", "input": "a"} | fields)
    assert (given.status, given.error["param"]) == (400, "tool_choice")
    assert given.error["message"] == f"tool_choice names '{name}', which is not among the tools."


def test_an_input_that_is_too_long_is_shortened_with_truncation_auto(client: OpenAI) -> None:
    long = "many words " * 3000
    with pytest.raises(BadRequestError, match="maximum context length"):
        client.responses.create(model="tiny", input=long, max_output_tokens=2)
    answer = client.responses.create(model="tiny", input=long, max_output_tokens=2, truncation="auto")
    assert answer.truncation == "auto"
    (listed,) = client.models.list().data
    context = listed.model_dump()["max_model_len"]
    assert answer.usage is not None and answer.usage.input_tokens == context - 2  # what the output leaves room for
