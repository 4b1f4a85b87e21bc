"""instructor: every mode of its OpenAI client, also by the older names; TOOLS and JSON_SCHEMA are streamed, too."""

from collections.abc import Iterable

import instructor
from cases import CHAT, case, run
from instructor import Mode
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, ConfigDict, Field

BRIEF = {"model": CHAT, "temperature": 0, "max_tokens": 200, "max_retries": 0}
PERSON = [{"role": "user", "content": "Name a person."}]
COLOUR = [{"role": "user", "content": 'Repeat this text:\n```json\n{"colour": "red"}\n```'}]


class Person(BaseModel):
    """A person. Without `forbid` its schema allows more properties, and a small model adds them without an end."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


class Colour(BaseModel):
    """A colour."""

    colour: str = "unknown"


def filled(mode: Mode, kind: type[BaseModel] = Person) -> str:
    """What the model fills in, by one mode."""
    client = instructor.from_openai(OpenAI(), mode=mode)
    messages = PERSON if kind is Person else COLOUR
    answer = client.chat.completions.create(**BRIEF, messages=messages, response_model=kind)
    assert isinstance(answer, kind)
    return f"{mode.name} {answer!r}"


@case("tools: named")
def tools() -> str:
    return "; ".join(map(filled, (Mode.TOOLS, Mode.TOOLS_STRICT, Mode.FUNCTIONS)))


@case("tools: parallel")
def parallel() -> str:
    client = instructor.from_openai(OpenAI(), mode=Mode.PARALLEL_TOOLS)
    text = "Repeat this text:\n" + "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
        for name, arguments in (("Colour", '{"colour": "red"}'), ("Person", '{"name": "Ann", "age": 30}'))
    )
    answer = client.chat.completions.create(
        **BRIEF, messages=[{"role": "user", "content": text}], response_model=Iterable[Person | Colour]
    )
    found = list(answer)
    assert found
    return repr(found)


def streamed(mode: Mode) -> str:
    """The partial objects of one mode while the model fills in a person."""
    client = instructor.from_openai(OpenAI(), mode=mode)
    *some, last = client.chat.completions.create_partial(**BRIEF, messages=PERSON, response_model=Person)
    assert isinstance(last.age, int)
    assert len(some) > 2
    return f"{len(some)} partial objects"


@case("stream")
def stream() -> str:
    return streamed(Mode.JSON_SCHEMA)


@case("tools: streamed")
def streamed_tools() -> str:
    return streamed(Mode.TOOLS)


@case("json_object")
def json_object() -> str:
    return f"{filled(Mode.JSON, Colour)}; {filled(Mode.JSON_O1, Colour)}; {filled(Mode.MD_JSON, Colour)}"


@case("json_schema")
def json_schema() -> str:
    return filled(Mode.JSON_SCHEMA)


@case("responses: tools")
def responses() -> str:
    found = []
    for mode in (Mode.RESPONSES_TOOLS, Mode.RESPONSES_TOOLS_WITH_INBUILT_TOOLS):
        client = instructor.from_openai(OpenAI(), mode=mode)
        answer = client.responses.create(model=CHAT, input="Name a person.", response_model=Person, max_retries=0)
        assert isinstance(answer, Person)
        found.append(f"{mode.name} {answer!r}")
    return "; ".join(found)


@case("parse")
def provider() -> str:
    answer = instructor.from_provider(f"openai/{CHAT}").chat.completions.create(
        messages=PERSON, response_model=Person, temperature=0, max_tokens=200
    )
    assert isinstance(answer, Person)
    return repr(answer)


@case("async")
async def asynchronous() -> str:
    client = instructor.from_openai(AsyncOpenAI())
    return repr(await client.chat.completions.create(**BRIEF, messages=PERSON, response_model=Person))


run()
