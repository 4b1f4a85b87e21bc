"""pydantic-ai: its chat and responses models, the three output modes, tools, streams."""

from cases import ASK_FOR_A_CALL, CHAT, case, run
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

SETTINGS = {"temperature": 0, "max_tokens": 200}
chat, responses = OpenAIChatModel(CHAT), OpenAIResponsesModel(CHAT)


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


class Colour(BaseModel):
    """A colour."""

    colour: str = "unknown"


def filled(model: object, output: object) -> str:
    """What an agent with this output type fills in."""
    answer = Agent(model, output_type=output, model_settings=SETTINGS).run_sync("Name a person.").output
    assert isinstance(answer, Person)
    return repr(answer)


def weather(model: object) -> str:
    """The last text of an agent that must have called its tool."""
    called = []
    agent = Agent(model, model_settings=SETTINGS)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The current weather of a city."""
        called.append(city)
        return "18 degrees and rain"

    answer = agent.run_sync(ASK_FOR_A_CALL)
    assert called[0] == "Paris"
    return answer.output


@case("text")
def text() -> str:
    answer = Agent(chat, instructions="Be brief.", model_settings=SETTINGS).run_sync("Name a colour.")
    assert answer.usage.output_tokens > 0
    return answer.output


@case("stream")
async def stream() -> str:
    # By default pydantic-ai hands over at once what comes within 0.1 s: a whole short answer of a fast engine.
    async with Agent(chat, model_settings=SETTINGS).run_stream("Name a colour.") as result:
        parts = [part async for part in result.stream_text(delta=True, debounce_by=None)]
    assert len(parts) > 1, parts
    return "".join(parts)


@case("tools: auto")
def auto() -> str:
    return weather(chat)


@case("agent")
def agent() -> str:
    return weather(responses)


@case("tools: required")
def required() -> str:
    return filled(chat, ToolOutput(Person))


@case("tools: streamed")
async def streamed() -> str:
    async with Agent(chat, output_type=ToolOutput(Person), model_settings=SETTINGS).run_stream("Name one.") as result:
        found = [each async for each in result.stream_output()]
    assert isinstance(found[-1], Person)
    return f"{len(found)} partial objects"


@case("json_schema")
def json_schema() -> str:
    return filled(chat, NativeOutput(Person))


@case("json_object")
def json_object() -> str:
    agent = Agent(chat, output_type=PromptedOutput(Colour), model_settings=SETTINGS)
    return repr(agent.run_sync('Repeat this text:\n{"colour": "red"}').output)


@case("responses")
def responses_text() -> str:
    return Agent(responses, model_settings=SETTINGS).run_sync("Name a colour.").output


@case("responses: stream")
async def responses_stream() -> str:
    async with Agent(responses, model_settings=SETTINGS).run_stream("Name a colour.") as result:
        return await result.get_output()


@case("responses: tools")
def responses_tools() -> str:
    return filled(responses, ToolOutput(Person))


@case("responses: structured")
def responses_structured() -> str:
    return filled(responses, NativeOutput(Person))


@case("tools: history")
def history() -> str:
    agent = Agent(chat, model_settings=SETTINGS)
    first = agent.run_sync("Name a colour.")
    return agent.run_sync("Another one.", message_history=first.all_messages()).output


run()
