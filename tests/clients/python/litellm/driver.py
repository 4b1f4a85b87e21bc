"""litellm: its OpenAI provider, and the fallbacks that read the text of an error."""

import json

import litellm
from cases import (
    ASK_FOR_A_CALL,
    CHAT,
    CHAT_URL,
    EMBED,
    EMBED_URL,
    KEY,
    LIMITED_KEY,
    PERSON,
    RERANK,
    RERANK_URL,
    case,
    run,
    weather_tool,
)
from pydantic import BaseModel, Field

MODEL = f"openai/{CHAT}"
HELLO = [{"role": "user", "content": "Name a colour."}]
BRIEF = {"model": MODEL, "messages": HELLO, "temperature": 0, "max_tokens": 60}
ASKED = {
    **BRIEF,
    "messages": [{"role": "user", "content": ASK_FOR_A_CALL}],
    "tools": [weather_tool()],
    "max_tokens": 200,
}
LONG = [{"role": "user", "content": "long " * 20_000}]
KEPT = 20  # tokens of a prompt that a deployment cuts


class Person(BaseModel):
    """What the model fills in."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


@case("text")
def text() -> str:
    answer = litellm.completion(**BRIEF)
    assert answer.usage.total_tokens > 0
    assert answer.choices[0].message.content
    return answer.choices[0].message.content


@case("stream")
def stream() -> str:
    events = list(litellm.completion(**BRIEF, stream=True, stream_options={"include_usage": True}))
    whole = litellm.stream_chunk_builder(events, messages=HELLO)
    assert whole.choices[0].message.content == litellm.completion(**BRIEF).choices[0].message.content
    assert whole.usage.completion_tokens > 0
    return f"{len(events)} events"


@case("async")
async def asynchronous() -> str:
    return (await litellm.acompletion(**BRIEF)).choices[0].message.content


@case("logprobs")
def logprobs() -> str:
    choice = litellm.completion(**BRIEF, logprobs=True, top_logprobs=2).choices[0]
    return f"{len(choice.logprobs.content)} tokens"


@case("tools: auto")
def auto() -> str:
    (call,) = litellm.completion(**ASKED).choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    return call.function.name


@case("tools: required")
def required() -> str:
    choice = litellm.completion(**ASKED, tool_choice="required", parallel_tool_calls=False).choices[0]
    assert choice.finish_reason == "tool_calls"
    return choice.message.tool_calls[0].function.arguments


@case("tools: named")
def named() -> str:
    wanted = {"type": "function", "function": {"name": "get_weather"}}
    return litellm.completion(**ASKED, tool_choice=wanted).choices[0].message.tool_calls[0].function.name


@case("tools: streamed")
def streamed() -> str:
    events = list(litellm.completion(**ASKED, stream=True))
    (call,) = litellm.stream_chunk_builder(events).choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    return f"{len(events)} events"


@case("tools: history")
def history() -> str:
    message = litellm.completion(**ASKED).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "name": "get_weather", "content": "18 degrees"}
    answer = litellm.completion(**ASKED | {"messages": [*ASKED["messages"], message, result]})
    return answer.choices[0].message.content


@case("json_object")
def json_object() -> str:
    asked = [{"role": "user", "content": 'Repeat this text:\n{"colour": "red"}'}]
    answer = litellm.completion(**BRIEF | {"messages": asked}, response_format={"type": "json_object"})
    return str(json.loads(answer.choices[0].message.content))


@case("json_schema")
def json_schema() -> str:
    given = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    return str(json.loads(litellm.completion(**BRIEF, response_format=given).choices[0].message.content))


@case("parse")
def parse() -> str:
    answer = litellm.completion(**BRIEF, response_format=Person)
    return repr(Person.model_validate_json(answer.choices[0].message.content))


@case("responses")
def responses() -> str:
    answer = litellm.responses(model=MODEL, input="Name a colour.", max_output_tokens=30, temperature=0)
    assert answer.output[0].content[0].text
    return answer.output[0].content[0].text


@case("responses: stream")
def responses_stream() -> str:
    kinds = [event.type for event in litellm.responses(model=MODEL, input="Hi", max_output_tokens=10, stream=True)]
    assert kinds[-1] in ("response.completed", "response.incomplete")
    return f"{len(kinds)} events"


@case("messages")
async def messages() -> str:
    answer = await litellm.anthropic.messages.acreate(
        model=f"anthropic/{CHAT}", messages=HELLO, max_tokens=20, api_base=CHAT_URL, api_key=KEY
    )
    return answer["content"][0]["text"]


@case("completions")
def completions() -> str:
    answer = litellm.text_completion(
        model=f"text-completion-openai/{CHAT}", prompt=["One, two,", "The sea"], max_tokens=4
    )
    assert len(answer.choices) == 2
    return answer.choices[0].text


@case("embeddings")
def embeddings() -> str:
    answer = litellm.embedding(model=f"openai/{EMBED}", input=["a cat"], api_base=f"{EMBED_URL}/v1")
    assert len(answer.data[0]["embedding"]) == 384
    return "384 numbers"


@case("rerank")
def rerank() -> str:
    found = []
    for provider in ("cohere", "jina_ai", "hosted_vllm"):
        answer = litellm.rerank(
            model=f"{provider}/{RERANK}", query="a cat", documents=["a small animal", "iron"], top_n=2,
            api_base=RERANK_URL if provider == "hosted_vllm" else f"{RERANK_URL}/v1/rerank", api_key=KEY,
        )  # fmt: skip
        assert len(answer.results) == 2
        found.append(provider)
    return ", ".join(found)


@case("errors")
def errors() -> str:
    for fields, kind in (
        ({"temperature": 9}, litellm.BadRequestError),
        ({"model": "openai/other"}, litellm.NotFoundError),
        ({"api_key": "wrong"}, litellm.AuthenticationError),
    ):
        try:
            litellm.completion(**BRIEF | fields, num_retries=0)
        except kind:
            continue
        raise AssertionError(f"no {kind.__name__}")
    return "BadRequestError, NotFoundError, AuthenticationError"


def attempted_fallbacks(answer: litellm.ModelResponse) -> int:
    """Fallbacks of the router before this answer."""
    return answer._hidden_params["additional_headers"]["x-litellm-attempted-fallbacks"]


@case("context overflow")
def context_overflow() -> str:
    try:
        litellm.completion(**BRIEF | {"messages": LONG}, num_retries=0)
    except litellm.ContextWindowExceededError:
        pass
    else:
        raise AssertionError("no ContextWindowExceededError")
    cut = {"model": MODEL, "extra_body": {"truncate_prompt_tokens": KEPT}}
    models = [
        {"model_name": "whole", "litellm_params": {"model": MODEL}},
        {"model_name": "cut", "litellm_params": cut},
    ]
    router = litellm.Router(model_list=models, context_window_fallbacks=[{"whole": ["cut"]}], num_retries=0)
    fits = router.completion(model="whole", messages=HELLO, max_tokens=8)
    falls_back = router.completion(model="whole", messages=LONG, max_tokens=8)
    assert attempted_fallbacks(fits) == 0
    assert attempted_fallbacks(falls_back) == 1
    assert falls_back.usage.prompt_tokens == KEPT
    return f"ContextWindowExceededError, and the router's fallback answered: {falls_back.choices[0].message.content!r}"


@case("retries")
def retries() -> str:
    limited = False
    for _ in range(14):
        try:
            litellm.completion(**BRIEF | {"max_tokens": 1}, api_key=LIMITED_KEY, num_retries=0, max_retries=0)
        except litellm.RateLimitError:
            limited = True
            break
    assert limited
    answer = litellm.completion(**BRIEF | {"max_tokens": 1}, api_key=LIMITED_KEY, max_retries=3)
    return answer.choices[0].finish_reason


@case("timeouts")
def timeouts() -> str:
    try:
        litellm.completion(
            **BRIEF | {"max_tokens": 500}, timeout=0.3, num_retries=0, max_retries=0, extra_body={"ignore_eos": True}
        )
    except litellm.Timeout:
        return "Timeout"
    raise AssertionError("no Timeout")


run()
