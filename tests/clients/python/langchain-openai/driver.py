"""langchain-openai: ChatOpenAI by both APIs, its three structured methods, tools, an agent, embeddings."""

from cases import ASK_FOR_A_CALL, CALL, CHAT, EMBED, EMBED_URL, case, run
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

chat = ChatOpenAI(model=CHAT, temperature=0, max_tokens=100)
responses = ChatOpenAI(model=CHAT, temperature=0, max_tokens=100, use_responses_api=True)
called: list[str] = []


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


class Colour(BaseModel):
    """A colour."""

    colour: str = "unknown"


@tool
def get_weather(city: str) -> str:
    """The current weather of a city."""
    called.append(city)
    return "18 degrees and rain"


@case("text")
def text() -> str:
    answer = chat.invoke("Name a colour.")
    assert answer.usage_metadata["total_tokens"] > 0
    return answer.text


@case("stream")
def stream() -> str:
    whole = None
    for chunk in chat.stream("Name a colour.", stream_usage=True):
        whole = chunk if whole is None else whole + chunk
    assert whole.text == chat.invoke("Name a colour.").text
    assert whole.usage_metadata["output_tokens"] > 0
    return whole.text


@case("async")
async def asynchronous() -> str:
    answers = await chat.abatch(["Name a colour.", "Name a river."])
    return " | ".join(answer.text[:40] for answer in answers)


@case("n")
def several() -> str:
    answer = ChatOpenAI(model=CHAT, n=2, temperature=1, max_tokens=8).generate([[HumanMessage("Hi")]])
    assert len(answer.generations[0]) == 2
    return "2"


@case("seed")
def seed() -> str:
    drawn = ChatOpenAI(model=CHAT, temperature=1.5, seed=7, max_tokens=12)
    assert drawn.invoke("Hi").text == drawn.invoke("Hi").text
    return "same"


@case("logprobs")
def logprobs() -> str:
    answer = chat.bind(logprobs=True, top_logprobs=2).invoke("Name a colour.")
    return f"{len(answer.response_metadata['logprobs']['content'])} tokens"


@case("stop")
def stop() -> str:
    word = chat.invoke("Name a colour.").text.split()[2]
    assert word not in chat.invoke("Name a colour.", stop=[word]).text
    return word


@case("tools: none")
def none() -> str:
    assert not chat.bind_tools([get_weather], tool_choice="none").invoke(ASK_FOR_A_CALL).tool_calls
    return "text"


@case("tools: auto")
def auto() -> str:
    (call,) = chat.bind_tools([get_weather]).invoke(ASK_FOR_A_CALL).tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})
    return str(call["args"])


@case("tools: required")
def required() -> str:
    answer = chat.bind_tools([get_weather], tool_choice="any", parallel_tool_calls=False, strict=True).invoke(
        "Weather?"
    )
    assert answer.tool_calls[0]["name"] == "get_weather"
    return str(answer.tool_calls[0]["args"])


@case("tools: named")
def named() -> str:
    answer = chat.bind_tools([get_weather], tool_choice="get_weather").invoke("Weather?")
    return answer.tool_calls[0]["name"]


@case("tools: parallel")
def parallel() -> str:
    answer = chat.bind_tools([get_weather]).invoke(f"{ASK_FOR_A_CALL}\n{CALL.replace('Paris', 'Rome')}")
    assert [call["args"]["city"] for call in answer.tool_calls] == ["Paris", "Rome"]
    return "Paris, Rome"


@case("tools: streamed")
def streamed() -> str:
    chunks = list(chat.bind_tools([get_weather]).stream(ASK_FOR_A_CALL))
    whole = sum(chunks[1:], chunks[0])
    assert whole.tool_calls[0]["args"] == {"city": "Paris"}
    return f"{len(chunks)} chunks"


@case("tools: history")
def history() -> str:
    bound = chat.bind_tools([get_weather])
    first = bound.invoke(ASK_FOR_A_CALL)
    result = ToolMessage("18 degrees and rain", tool_call_id=first.tool_calls[0]["id"])
    return bound.invoke([HumanMessage(ASK_FOR_A_CALL), first, result]).text


@case("agent")
def agent() -> str:
    for model in (chat, responses):
        called.clear()
        state = create_agent(model, [get_weather]).invoke({"messages": [HumanMessage(ASK_FOR_A_CALL)]})
        assert called[0] == "Paris"
        assert state["messages"][-1].text
    return state["messages"][-1].text


@case("json_object")
def json_object() -> str:
    answer = chat.with_structured_output(Colour, method="json_mode").invoke('Repeat this text:\n{"colour": "red"}')
    assert isinstance(answer, Colour)
    return repr(answer)


@case("json_schema")
def json_schema() -> str:
    answer = chat.with_structured_output(Person, method="json_schema").invoke("Name a person.")
    assert isinstance(answer, Person)
    return repr(answer)


@case("parse")
def parse() -> str:
    answer = chat.with_structured_output(Person, method="function_calling").invoke("Name a person.")
    assert isinstance(answer, Person)
    return repr(answer)


@case("responses")
def responses_text() -> str:
    return responses.invoke("Name a colour.").text


@case("responses: stream")
def responses_stream() -> str:
    return "".join(chunk.text for chunk in responses.stream("Name a colour."))


@case("responses: tools")
def responses_tools() -> str:
    bound = responses.bind_tools([get_weather])
    first = bound.invoke(ASK_FOR_A_CALL)
    result = ToolMessage("18 degrees and rain", tool_call_id=first.tool_calls[0]["id"])
    return bound.invoke([HumanMessage(ASK_FOR_A_CALL), first, result]).text


@case("responses: structured")
def responses_structured() -> str:
    answer = responses.with_structured_output(Person, method="json_schema").invoke("Name a person.")
    assert isinstance(answer, Person)
    return repr(answer)


@case("completions")
def completions() -> str:
    return OpenAI(model=CHAT, max_tokens=4).generate(["One, two,", "The sea"]).generations[1][0].text


@case("embeddings")
def embeddings() -> str:
    embedder = OpenAIEmbeddings(model=EMBED, base_url=f"{EMBED_URL}/v1", check_embedding_ctx_length=False)
    assert len(embedder.embed_documents(["a cat", "a kitten"])[1]) == 384
    return "384 numbers"


@case("context overflow")
def context_overflow() -> str:
    try:
        chat.invoke("long " * 20_000)
    except Exception as error:  # noqa: BLE001  # which class it is depends on the version
        assert "maximum context length" in str(error), error
        return type(error).__name__
    raise AssertionError("no error")


run()
