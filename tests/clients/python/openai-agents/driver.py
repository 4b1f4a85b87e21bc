"""openai-agents: the Agents SDK by its default (the Responses API) and by chat completions."""

import json

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    RunResult,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from cases import ASK_FOR_A_CALL, CHAT, case, run
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

set_tracing_disabled(True)
SETTINGS = ModelSettings(temperature=0, max_tokens=200)
called: list[str] = []


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


@function_tool
def get_weather(city: str) -> str:
    """The current weather of a city."""
    called.append(city)
    return "18 degrees and rain"


def made(*, chat: bool = False, settings: ModelSettings = SETTINGS, **more: object) -> Agent:
    """An agent by one of the two APIs."""
    model = OpenAIChatCompletionsModel(CHAT, AsyncOpenAI()) if chat else CHAT
    return Agent(name="helper", instructions="Be brief.", model=model, model_settings=settings, **more)


async def weather(agent: Agent, question: str = ASK_FOR_A_CALL) -> RunResult:
    """The run of an agent that must have called its tool."""
    called.clear()
    answer = await Runner.run(agent, question)
    assert called
    return answer


def transcript(answer: RunResult) -> str:
    """One line of JSON per item of the conversation, as it would be sent with the next question."""
    return "\n".join(json.dumps(item, ensure_ascii=False) for item in answer.to_input_list())


@case("text")
async def text() -> str:
    return (await Runner.run(made(chat=True), "Name a colour.")).final_output


@case("stream")
async def stream() -> str:
    result = Runner.run_streamed(made(chat=True), "Name a colour.")
    kinds = {event.type async for event in result.stream_events()}
    assert "raw_response_event" in kinds
    return result.final_output


@case("tools: auto")
async def auto() -> str:
    plain = Agent(
        name="helper",
        model=OpenAIChatCompletionsModel(CHAT, AsyncOpenAI()),
        model_settings=SETTINGS,
        tools=[get_weather],
    )
    answer = await weather(plain)
    assert called[0] == "Paris"
    return answer.final_output


@case("tools: required")
async def required() -> str:
    settings = ModelSettings(temperature=0, max_tokens=200, tool_choice="required", parallel_tool_calls=False)
    return (
        await weather(made(chat=True, settings=settings, tools=[get_weather]), "What is the weather in Paris?")
    ).final_output


@case("tools: named")
async def named() -> str:
    settings = ModelSettings(temperature=0, max_tokens=200, tool_choice="get_weather")
    return (await weather(made(settings=settings, tools=[get_weather]), "What is the weather in Paris?")).final_output


@case("json_schema")
async def json_schema() -> str:
    answer = (await Runner.run(made(chat=True, output_type=Person), "Name a person.")).final_output
    assert isinstance(answer, Person)
    return repr(answer)


@case("responses")
async def responses() -> str:
    return (await Runner.run(made(), "Name a colour.")).final_output


@case("responses: stream")
async def responses_stream() -> str:
    result = Runner.run_streamed(made(), "Name a colour.")
    kinds = [event.data.type async for event in result.stream_events() if event.type == "raw_response_event"]
    assert "response.output_text.delta" in kinds
    return result.final_output


@case("responses: tools")
async def responses_tools() -> str:
    settings = ModelSettings(temperature=0, max_tokens=200, tool_choice="required", parallel_tool_calls=False)
    return (await weather(made(settings=settings, tools=[get_weather]), "What is the weather in Paris?")).final_output


@case("responses: structured")
async def responses_structured() -> str:
    answer = (await Runner.run(made(output_type=Person), "Name a person.")).final_output
    assert isinstance(answer, Person)
    return repr(answer)


@case("agent")
async def agent() -> str:
    other = Agent(name="expert", instructions="Be brief.", model=CHAT, model_settings=SETTINGS)
    settings = ModelSettings(temperature=0, max_tokens=200, tool_choice="required", parallel_tool_calls=False)
    answer = await Runner.run(made(settings=settings, handoffs=[handoff(other)]), "Ask the expert for a colour.")
    assert answer.last_agent.name == "expert"
    return transcript(await weather(made(settings=settings, tools=[get_weather]), "What is the weather in Paris?"))


run()
