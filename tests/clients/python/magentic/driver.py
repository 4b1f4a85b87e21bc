"""magentic: functions whose bodies the model fills, by plain schemas and by tools that are not strict."""

import os
from typing import Literal

from cases import ASK_FOR_A_CALL, CHAT, case, run
from magentic import (
    AsyncStreamedStr,
    FunctionCall,
    OpenaiChatModel,
    ParallelFunctionCall,
    StreamedStr,
    prompt,
    prompt_chain,
)
from pydantic import BaseModel, Field

model = OpenaiChatModel(CHAT, base_url=os.environ["OPENAI_BASE_URL"], temperature=0, max_tokens=100)
Colour = Literal["red", "blue"]
called: list[str] = []


class Person(BaseModel):
    """A person; its schema does not mention additional properties."""

    name: Literal["Ann", "Bob"]
    age: int = Field(ge=0, le=120)


def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """The current weather of a city."""
    called.append(city)
    return "18 degrees and rain"


@case("text")
def text() -> str:
    @prompt("Name a colour.", model=model)
    def ask() -> str: ...

    return ask()


@case("stream")
def stream() -> str:
    @prompt("Name a colour.", model=model)
    def ask() -> StreamedStr: ...

    parts = list(ask())
    assert len(parts) > 1
    return "".join(parts)


@case("async")
async def asynchronous() -> str:
    @prompt("Name a colour.", model=model)
    async def ask() -> AsyncStreamedStr: ...

    return "".join([part async for part in await ask()])


@case("parse")
def parse() -> str:
    @prompt("Name a person.", model=model)
    def ask() -> Person: ...

    answer = ask()
    assert isinstance(answer, Person)
    return repr(answer)


@case("tools: required")
def required() -> str:
    @prompt("What is the weather in Paris?", functions=[get_weather], model=model)
    def ask() -> FunctionCall[str]: ...

    assert ask()() == "18 degrees and rain"
    return called[-1]


@case("tools: parallel")
def parallel() -> str:
    @prompt("What is the weather in Paris and in Rome?", functions=[get_weather], model=model)
    def ask() -> ParallelFunctionCall[str]: ...

    results = list(ask()())
    assert results
    assert set(results) == {"18 degrees and rain"}
    return f"{len(results)} calls"


@case("agent")
def agent() -> str:
    @prompt_chain("{text}", functions=[get_weather], model=model, max_calls=3)
    def ask(text: str) -> str: ...

    called.clear()
    answer = ask(ASK_FOR_A_CALL)
    assert called == ["Paris"]
    return answer


run()
