"""haystack: its chat generators for both APIs, structured output, an agent with a tool, embedders."""

import os
from typing import Annotated, Any, Literal

from cases import ASK_FOR_A_CALL, CHAT, EMBED, EMBED_URL, case, run
from haystack import Document
from haystack.components.agents import Agent
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from pydantic import BaseModel, Field

URL = os.environ["OPENAI_BASE_URL"]


class Person(BaseModel):
    """A person."""

    name: Literal["Ann", "Bob"]
    age: int = Field(ge=0, le=120)


@tool
def get_weather(city: Annotated[str, "its name"]) -> str:
    """The current weather of a city."""
    return "18 degrees and rain"


def chat(more: dict[str, Any] | None = None, **fields: Any) -> OpenAIChatGenerator:
    """A generator by the chat API."""
    kwargs = {"temperature": 0, "max_completion_tokens": 100, **(more or {})}
    return OpenAIChatGenerator(model=CHAT, api_base_url=URL, generation_kwargs=kwargs, **fields)


def responses(more: dict[str, Any] | None = None, **fields: Any) -> OpenAIResponsesChatGenerator:
    """A generator by the Responses API."""
    kwargs = {"temperature": 0, "max_output_tokens": 100, **(more or {})}
    return OpenAIResponsesChatGenerator(model=CHAT, api_base_url=URL, generation_kwargs=kwargs, **fields)


def reply(generator: Any, text: str) -> ChatMessage:
    """What the model answers."""
    return generator.run([ChatMessage.from_system("Be brief."), ChatMessage.from_user(text)])["replies"][0]


def streamed(build: Any) -> str:
    """The text of an answer that came in parts."""
    parts: list[Any] = []
    answer = reply(build(streaming_callback=parts.append), "Name a colour.")
    assert len(parts) > 1
    assert answer.text
    return answer.text


def weather(build: Any) -> str:
    """The last text of an agent that must have called its tool."""
    agent = Agent(chat_generator=build(), tools=[get_weather], max_agent_steps=3)
    agent.warm_up()
    history = agent.run(messages=[ChatMessage.from_user(ASK_FOR_A_CALL)])["messages"]
    assert any(message.tool_call_results for message in history)
    return str(history[-1].text)


def called(build: Any, **fields: Any) -> str:
    """The call of an answer that must have one."""
    answer = reply(build({"tool_choice": "required"}, tools=[get_weather], **fields), "What is the weather in Paris?")
    assert set(answer.tool_calls[0].arguments) == {"city"}
    return repr(answer.tool_calls)


@case("text")
def text() -> str:
    answer = reply(chat(), "Name a colour.")
    assert answer.meta["usage"]["completion_tokens"] > 0
    return answer.text


@case("stream")
def stream() -> str:
    return streamed(chat)


@case("tools: required")
def required() -> str:
    return called(chat, tools_strict=True)


@case("tools: streamed")
def tools_streamed() -> str:
    return called(chat, streaming_callback=lambda _: None)


@case("agent")
def agent() -> str:
    return weather(chat)


@case("json_schema")
def json_schema() -> str:
    return repr(Person.model_validate_json(reply(chat({"response_format": Person}), "Name a person.").text))


@case("responses")
def responses_text() -> str:
    return reply(responses(), "Name a colour.").text


@case("responses: stream")
def responses_stream() -> str:
    return streamed(responses)


@case("responses: tools")
def responses_tools() -> str:
    return f"{called(responses)} {weather(responses)}"


@case("responses: structured")
def responses_structured() -> str:
    return repr(Person.model_validate_json(reply(responses({"text_format": Person}), "Name a person.").text))


@case("embeddings")
def embeddings() -> str:
    one = OpenAITextEmbedder(model=EMBED, api_base_url=f"{EMBED_URL}/v1").run("a")["embedding"]
    embedder = OpenAIDocumentEmbedder(model=EMBED, api_base_url=f"{EMBED_URL}/v1", progress_bar=False)
    (document,) = embedder.run([Document(content="a")])["documents"]
    assert len(one) == len(document.embedding)
    return str(len(one))


run()
