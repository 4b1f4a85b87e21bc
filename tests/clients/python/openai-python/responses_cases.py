"""The Responses API: text, events, tools, structured output, and what a server without storage refuses."""

import json

import openai
from cases import ASK_FOR_A_CALL, CHAT, case, weather_tool
from openai import OpenAI
from pydantic import BaseModel, Field

client = OpenAI()
BRIEF = {
    "model": CHAT,
    "input": "Name a colour.",
    "instructions": "Be brief.",
    "temperature": 0,
    "max_output_tokens": 60,
}
TOOL = {"type": "function", **weather_tool()["function"], "strict": True}
ASKED = {"model": CHAT, "input": ASK_FOR_A_CALL, "temperature": 0, "max_output_tokens": 100, "tools": [TOOL]}


class Person(BaseModel):
    """What the model fills in."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


@case("responses")
def text() -> str:
    answer = client.responses.create(**BRIEF, store=False)
    assert answer.output_text
    assert answer.status in ("completed", "incomplete")
    assert answer.usage.total_tokens > 0
    try:
        client.responses.create(**BRIEF, previous_response_id=answer.id)
    except openai.BadRequestError as error:
        assert error.param == "previous_response_id", error
        return answer.output_text
    raise AssertionError("previous_response_id was accepted")


@case("responses: stream")
def stream() -> str:
    with client.responses.stream(**BRIEF) as events:
        kinds = [event.type for event in events]
        final = events.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert "response.output_text.delta" in kinds
    assert final.output_text == client.responses.create(**BRIEF).output_text
    return f"{len(kinds)} events"


@case("responses: tools")
def tools() -> str:
    answer = client.responses.create(**ASKED)
    (call,) = [item for item in answer.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"city": "Paris"}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees and rain"}
    history = [{"role": "user", "content": ASK_FOR_A_CALL}, *answer.output, output]
    assert client.responses.create(**ASKED | {"input": history}).output_text
    forced = client.responses.create(**ASKED | {"input": "Weather?"}, tool_choice="required", parallel_tool_calls=False)
    assert forced.output[0].type == "function_call"
    named = client.responses.create(**ASKED, tool_choice={"type": "function", "name": "get_weather"})
    assert named.output[0].name == "get_weather"
    return call.arguments


@case("responses: tools streamed")
def streamed_tools() -> str:
    with client.responses.stream(**ASKED) as events:
        deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
        final = events.get_final_response()
    (call,) = [item for item in final.output if item.type == "function_call"]
    assert "".join(deltas) == call.arguments
    return f"{len(deltas)} deltas"


@case("responses: structured")
def structured() -> str:
    answer = client.responses.parse(**BRIEF, text_format=Person)
    assert isinstance(answer.output_parsed, Person)
    return repr(answer.output_parsed)
