"""llama-index: OpenAILike and OpenAIResponses, structured output, tools, an agent, embeddings."""

from cases import ASK_FOR_A_CALL, CHAT, CHAT_URL, EMBED, EMBED_URL, KEY, case, lacks, run
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from llama_index.llms.openai_like.responses import OpenAILikeResponses
from pydantic import BaseModel, Field

BASE = {"model": CHAT, "api_base": f"{CHAT_URL}/v1", "api_key": KEY, "temperature": 0, "max_retries": 0}
llm = OpenAILike(**BASE, max_tokens=100, is_chat_model=True, is_function_calling_model=True, context_window=8192)
HELLO = [ChatMessage(role="user", content="Name a colour.")]
called: list[str] = []


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


def get_weather(city: str) -> str:
    """The current weather of a city."""
    called.append(city)
    return "18 degrees and rain"


TOOL = FunctionTool.from_defaults(get_weather)


@case("text")
def text() -> str:
    return llm.chat(HELLO).message.content


@case("stream")
def stream() -> str:
    *_, last = llm.stream_chat(HELLO)
    assert last.message.content == llm.chat(HELLO).message.content
    return last.message.content


@case("async")
async def asynchronous() -> str:
    return (await llm.achat(HELLO)).message.content


@case("logprobs")
def logprobs() -> str:
    answer = OpenAILike(**BASE, max_tokens=8, is_chat_model=True, logprobs=True, top_logprobs=2).chat(HELLO)
    assert answer.logprobs
    return f"{len(answer.logprobs)} tokens"


@case("tools: auto")
def auto() -> str:
    answer = llm.chat_with_tools([TOOL], user_msg=ASK_FOR_A_CALL)
    (call,) = llm.get_tool_calls_from_response(answer)
    assert call.tool_kwargs == {"city": "Paris"}
    return str(call.tool_kwargs)


@case("tools: required")
def required() -> str:
    answer = llm.chat_with_tools([TOOL], user_msg="Weather?", tool_required=True)
    return str(llm.get_tool_calls_from_response(answer)[0].tool_kwargs)


@case("tools: streamed")
def streamed() -> str:
    *_, last = llm.stream_chat_with_tools([TOOL], user_msg=ASK_FOR_A_CALL)
    (call,) = llm.get_tool_calls_from_response(last)
    assert call.tool_kwargs == {"city": "Paris"}
    return str(call.tool_kwargs)


@case("tools: history")
def history() -> str:
    answer = llm.predict_and_call([TOOL], user_msg=ASK_FOR_A_CALL)
    assert called[-1] == "Paris"
    return str(answer)


@case("agent")
async def agent() -> str:
    called.clear()
    answer = await FunctionAgent(tools=[TOOL], llm=llm).run(ASK_FOR_A_CALL)
    assert called[0] == "Paris"
    return str(answer)


@case("parse")
def parse() -> str:
    answer = llm.as_structured_llm(Person).chat(HELLO).raw
    assert isinstance(answer, Person)
    return repr(answer)


@case("json_schema")
def json_schema() -> str:
    strict = OpenAILike(**BASE, max_tokens=100, is_chat_model=True, should_use_structured_outputs=True)
    answer = strict.as_structured_llm(Person).chat(HELLO).raw
    assert isinstance(answer, Person)
    return repr(answer)


responses = OpenAILikeResponses(**BASE, max_output_tokens=100, context_window=8192, is_function_calling_model=True)


@case("responses")
def responses_text() -> str:
    return responses.chat(HELLO).message.content


@case("responses: stream")
def responses_stream() -> str:
    *_, last = responses.stream_chat(HELLO)
    return last.message.content


@case("responses: tools")
def responses_tools() -> str:
    answer = responses.chat_with_tools([TOOL], user_msg=ASK_FOR_A_CALL)
    return str(responses.get_tool_calls_from_response(answer)[0].tool_kwargs)


@case("completions")
def completions() -> str:
    return OpenAILike(**BASE, max_tokens=8, is_chat_model=False).complete("One, two,").text


@case("embeddings")
def embeddings() -> str:
    embedder = OpenAILikeEmbedding(model_name=EMBED, api_base=f"{EMBED_URL}/v1", api_key=KEY)
    assert len(embedder.get_text_embedding_batch(["a cat", "a kitten"])[1]) == 384
    return "384 numbers"


lacks("n", "one completion per call")
run()
