"""Tools: who chooses, several calls, streamed arguments, and the history of a conversation with calls."""

import json

from cases import ASK_FOR_A_CALL, CALL, CHAT, case, weather_tool
from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel, Field

client = OpenAI()
WEATHER = weather_tool()
TIME = {
    "type": "function",
    "function": {**WEATHER["function"], "name": "get_time", "description": "The time in a city."},
}
ASKED = {
    "model": CHAT, "temperature": 0, "max_tokens": 200, "messages": [{"role": "user", "content": ASK_FOR_A_CALL}],
    "tools": [WEATHER, TIME],
}  # fmt: skip
QUESTION = {**ASKED, "messages": [{"role": "user", "content": "What is the weather in Paris?"}]}


class GetWeather(BaseModel):
    """The current weather of a city."""

    city: str = Field(max_length=20)


def called(choice: object) -> list[tuple[str, dict]]:
    assert choice.finish_reason == "tool_calls", choice
    return [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]


@case("tools: none")
def none() -> str:
    choice = client.chat.completions.create(**ASKED, tool_choice="none").choices[0]
    assert choice.message.tool_calls is None
    assert choice.message.content
    return choice.message.content


@case("tools: auto")
def auto() -> str:
    calls = called(client.chat.completions.create(**ASKED, tool_choice="auto").choices[0])
    assert calls == [("get_weather", {"city": "Paris"})]
    return str(calls)


@case("tools: required")
def required() -> str:
    calls = called(
        client.chat.completions.create(**QUESTION, tool_choice="required", parallel_tool_calls=False).choices[0]
    )
    assert len(calls) == 1
    assert calls[0][0] in ("get_weather", "get_time")
    return str(calls)


@case("tools: named")
def named() -> str:
    choice = {"type": "function", "function": {"name": "get_time"}}
    ((name, arguments),) = called(client.chat.completions.create(**QUESTION, tool_choice=choice).choices[0])
    assert name == "get_time"
    assert set(arguments) == {"city"}
    return str(arguments)


@case("tools: parallel")
def parallel() -> str:
    both = f"{ASK_FOR_A_CALL}\n{CALL.replace('Paris', 'Rome')}"
    answer = client.chat.completions.create(**ASKED | {"messages": [{"role": "user", "content": both}]})
    calls = called(answer.choices[0])
    assert [arguments["city"] for _, arguments in calls] == ["Paris", "Rome"]
    return str(calls)


@case("tools: streamed")
def streamed() -> str:
    events = list(
        client.chat.completions.create(**ASKED, tool_choice="required", parallel_tool_calls=False, stream=True)
    )
    deltas = [call for event in events for choice in event.choices for call in choice.delta.tool_calls or ()]
    assert deltas[0].id
    assert deltas[0].function.name
    assert len(deltas) > 2, "the arguments came at once"
    assert json.loads("".join(delta.function.arguments or "" for delta in deltas))
    with client.chat.completions.stream(**ASKED) as stream:
        calls = called(stream.get_final_completion().choices[0])
    assert calls == [("get_weather", {"city": "Paris"})]
    return f"{len(deltas)} deltas"


@case("tools: parse")
def parse() -> str:
    tool = pydantic_function_tool(GetWeather)
    answer = client.chat.completions.parse(
        **QUESTION | {"tools": [tool]}, tool_choice="required", parallel_tool_calls=False
    )
    (call,) = answer.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, GetWeather)
    return repr(call.function.parsed_arguments)


@case("tools: history")
def history() -> str:
    first = client.chat.completions.create(**ASKED).choices[0].message
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "18 degrees and rain"}
    answer = client.chat.completions.create(**ASKED | {"messages": [*ASKED["messages"], first, result]})
    assert answer.choices[0].message.content
    return answer.choices[0].message.content
