"""Models, errors, retries, timeouts, headers and the asynchronous client."""

from concurrent.futures import ThreadPoolExecutor

import openai
from cases import CHAT, LIMITED_KEY, case
from openai import AsyncOpenAI, OpenAI

client = OpenAI(max_retries=0)
HELLO = [{"role": "user", "content": "Hi"}]
BRIEF = {"model": CHAT, "messages": HELLO, "max_tokens": 1}
AT_ONCE = 14  # the limited key has 12 requests per minute


def refused(kind: type[openai.APIStatusError], **fields: object) -> openai.APIStatusError:
    """The error of a chat with these fields."""
    try:
        client.chat.completions.create(**BRIEF | fields)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


@case("models")
def models() -> str:
    (model,) = client.models.list().data
    assert model.id == CHAT
    assert client.models.retrieve(CHAT).id == CHAT
    return model.id


@case("errors")
def errors() -> str:
    assert refused(openai.BadRequestError, temperature=9).param == "temperature"
    assert refused(openai.NotFoundError, model="gpt-5").code == "model_not_found"
    with OpenAI(api_key="wrong", max_retries=0) as other:
        try:
            other.models.list()
        except openai.AuthenticationError as error:
            assert error.code == "invalid_api_key"
            return "BadRequestError, NotFoundError, AuthenticationError"
    raise AssertionError("a wrong key was accepted")


@case("context overflow")
def context_overflow() -> str:
    error = refused(openai.BadRequestError, messages=[{"role": "user", "content": "long " * 20_000}])
    assert error.code == "context_length_exceeded"
    assert "This model's maximum context length is" in error.message
    return error.message


def limited_call(_: int) -> str:
    with OpenAI(api_key=LIMITED_KEY, max_retries=0) as limited:
        try:
            limited.chat.completions.create(**BRIEF)
        except openai.RateLimitError as error:
            return error.response.headers["retry-after"]
    return ""


@case("retries")
def retries() -> str:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waits = [wait for wait in pool.map(limited_call, range(AT_ONCE)) if wait]
    assert waits, "no request was limited"
    assert all(int(wait) >= 1 for wait in waits)
    with OpenAI(api_key=LIMITED_KEY, max_retries=2) as patient:
        answer = patient.chat.completions.with_raw_response.create(**BRIEF)
    assert answer.retries_taken >= 1
    return f"Retry-After {waits[0]}, {answer.retries_taken} retries"


@case("timeouts")
def timeouts() -> str:
    try:
        client.with_options(timeout=0.3).chat.completions.create(
            **BRIEF | {"max_tokens": 500}, extra_body={"ignore_eos": True}
        )
    except openai.APITimeoutError:
        assert client.chat.completions.create(**BRIEF).usage.completion_tokens == 1
        return "APITimeoutError"
    raise AssertionError("500 tokens came within 0.3 s")


@case("headers")
def headers() -> str:
    answer = client.chat.completions.with_raw_response.create(**BRIEF)
    assert answer.headers["x-request-id"] == answer.parse()._request_id
    own = client.chat.completions.with_raw_response.create(**BRIEF, extra_headers={"x-request-id": "mine-1"})
    assert own.headers["x-request-id"] == "mine-1"
    return answer.headers["x-request-id"]


@case("async")
async def asynchronous() -> str:
    async with AsyncOpenAI() as other:
        stream = await other.chat.completions.create(**BRIEF | {"max_tokens": 8}, stream=True)
        texts = [event.choices[0].delta.content or "" async for event in stream if event.choices]
    assert "".join(texts)
    return "".join(texts)
