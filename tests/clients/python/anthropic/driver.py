"""anthropic: the Messages API, whole and streamed, tools, errors."""

import anthropic
from anthropic import Anthropic, AsyncAnthropic
from cases import ASK_FOR_A_CALL, CHAT, CHAT_URL, CITY, KEY, LIMITED_KEY, case, lacks, run

client = Anthropic(base_url=CHAT_URL, api_key=KEY, max_retries=0)
GREEDY = {"temperature": 0}  # this version of the client has no argument for it
HELLO = [{"role": "user", "content": "Name a colour."}]
BRIEF = {"model": CHAT, "messages": HELLO, "max_tokens": 30, "extra_body": GREEDY, "system": "Be brief."}
TOOL = {"name": "get_weather", "description": "The current weather of a city.", "input_schema": CITY}
ASKED = {
    "model": CHAT, "max_tokens": 200, "extra_body": GREEDY, "tools": [TOOL],
    "messages": [{"role": "user", "content": ASK_FOR_A_CALL}],
}  # fmt: skip


@case("messages")
def messages() -> str:
    answer = client.messages.create(**BRIEF)
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert answer.usage.output_tokens <= 30
    return answer.content[0].text


@case("messages: stream")
def stream() -> str:
    with client.messages.stream(**BRIEF) as events:
        text = "".join(events.text_stream)
        final = events.get_final_message()
    assert text == final.content[0].text == client.messages.create(**BRIEF).content[0].text
    return text


@case("messages: tools")
def tools() -> str:
    answer = client.messages.create(**ASKED)
    assert answer.stop_reason == "tool_use"
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    assert call.input == {"city": "Paris"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees and rain"}
    turns = [
        *ASKED["messages"],
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [result]},
    ]
    assert client.messages.create(**ASKED | {"messages": turns}).content
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "get_weather"}):
        forced = client.messages.create(**ASKED | {"messages": HELLO}, tool_choice=choice)
        assert forced.content[0].type == "tool_use"
    assert client.messages.create(**ASKED, tool_choice={"type": "none"}).stop_reason != "tool_use"
    return str(call.input)


@case("messages: tools streamed")
def streamed() -> str:
    with client.messages.stream(**ASKED) as events:
        kinds = [event.type for event in events]
        final = events.get_final_message()
    assert "input_json" in kinds
    assert final.content[-1].input == {"city": "Paris"}
    return f"{len(kinds)} events"


@case("agent")
def agent() -> str:
    called = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The current weather of a city."""
        called.append(city)
        return "18 degrees and rain"

    asked = {name: value for name, value in ASKED.items() if name != "tools"}
    final = client.beta.messages.tool_runner(**asked, tools=[get_weather]).until_done()
    assert called[0] == "Paris"
    return str(final.content)


@case("messages: count tokens")
def count() -> str:
    counted = client.messages.count_tokens(model=CHAT, messages=HELLO, system="Be brief.").input_tokens
    usage = client.messages.create(**BRIEF).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens
    return str(counted)


@case("stop")
def stop() -> str:
    word = client.messages.create(**BRIEF).content[0].text.split()[2]
    answer = client.messages.create(**BRIEF, stop_sequences=[word])
    assert answer.stop_reason == "stop_sequence"
    assert answer.stop_sequence == word
    return word


@case("models")
def models() -> str:
    return ", ".join(model.id for model in client.models.list())


@case("errors")
def errors() -> str:
    for fields, kind in (
        ({"extra_body": {"temperature": 9}}, anthropic.BadRequestError),
        ({"model": "claude-opus-4"}, anthropic.NotFoundError),
    ):
        try:
            client.messages.create(**BRIEF | fields)
        except kind as error:
            assert error.body["type"] == "error"
            continue
        raise AssertionError(f"no {kind.__name__}")
    try:
        Anthropic(base_url=CHAT_URL, api_key="wrong", max_retries=0).messages.create(**BRIEF)
    except anthropic.AuthenticationError:
        return "BadRequestError, NotFoundError, AuthenticationError"
    raise AssertionError("a wrong key was accepted")


@case("retries")
def retries() -> str:
    limited = Anthropic(base_url=CHAT_URL, api_key=LIMITED_KEY, max_retries=0)
    for _ in range(20):
        try:
            limited.messages.create(**BRIEF | {"max_tokens": 1})
        except anthropic.RateLimitError as error:
            wait = error.response.headers["retry-after"]
            limited.with_options(max_retries=3).messages.create(**BRIEF | {"max_tokens": 1})
            return f"Retry-After {wait}"
    raise AssertionError("20 requests were not limited")


@case("headers")
def headers() -> str:
    answer = client.messages.with_raw_response.create(**BRIEF)
    assert answer.headers["request-id"] == answer.parse()._request_id
    return answer.headers["request-id"]


@case("async")
async def asynchronous() -> str:
    async with AsyncAnthropic(base_url=CHAT_URL, api_key=KEY) as other:
        return (await other.messages.create(**BRIEF)).content[0].text


lacks("logprobs", "Anthropic's API has none")
run()
