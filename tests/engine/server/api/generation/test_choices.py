"""Several samples, logprobs and the sampling fields, through the official client and a real server."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from sluice_engine.text import load_text_model
from tests.engine.serving import CHAT, Served

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is a KV cache?"}]
PROMPT = "A replica is ready when its engine has loaded the model and answers. " * 3


@pytest.fixture
def client(served: Served) -> Iterator[OpenAI]:
    with served.client() as client:
        yield client


def test_n_samples_differ_are_reproducible_and_count_the_prompt_once(client: OpenAI) -> None:
    def ask(n: int) -> openai.types.Completion:
        return client.completions.create(
            model="tiny", prompt=PROMPT, n=n, seed=5, temperature=1.5, max_tokens=12, extra_body={"ignore_eos": True}
        )

    one, four = ask(1), ask(4)
    texts = [choice.text for choice in four.choices]
    assert [choice.index for choice in four.choices] == [0, 1, 2, 3]
    assert len(set(texts)) == 4
    assert texts == [choice.text for choice in ask(4).choices]
    assert texts[0] == one.choices[0].text  # further samples do not change earlier ones
    assert one.usage is not None and four.usage is not None
    assert four.usage.prompt_tokens == one.usage.prompt_tokens
    assert four.usage.completion_tokens == 4 * 12


def test_streamed_samples_interleave_and_equal_the_collected_ones(client: OpenAI) -> None:
    asked = {"model": "tiny", "messages": MESSAGES, "n": 3, "seed": 9, "temperature": 1.2, "max_tokens": 400}
    asked |= {"extra_body": {"ignore_eos": True}}  # long enough that a busy server cannot send each sample in one piece
    whole = client.chat.completions.create(**asked)  # type: ignore[call-overload]
    stream = client.chat.completions.create(**asked, stream=True)  # type: ignore[call-overload]
    texts, roles, ends, order = ["", "", ""], [0, 0, 0], ["", "", ""], []
    for chunk in stream:
        (choice,) = chunk.choices
        roles[choice.index] += choice.delta.role == "assistant"
        texts[choice.index] += choice.delta.content or ""
        ends[choice.index] = choice.finish_reason or ends[choice.index]
        if choice.delta.content:
            order.append(choice.index)
    assert texts == [choice.message.content for choice in whole.choices]
    assert ends == [choice.finish_reason for choice in whole.choices]
    assert roles == [1, 1, 1]
    assert order != sorted(order)


def test_samples_of_a_group_compute_the_prompt_once(served: Served, client: OpenAI) -> None:
    def prompts() -> float:
        return served.metric("sluice_prompt_tokens_total")

    before = prompts()
    fresh = "Nobody has asked for this before: " + " ".join(map(str, range(40)))
    answer = client.completions.create(model="tiny", prompt=fresh, n=4, temperature=1.0, max_tokens=4)
    assert answer.usage is not None
    served.wait(lambda: prompts() > before)
    assert prompts() - before == answer.usage.prompt_tokens
    assert answer.usage.completion_tokens > 4


def test_a_disconnect_cancels_every_sample(served: Served, client: OpenAI) -> None:
    aborted = served.metric("sluice_requests_total", outcome="abort")
    stream = client.chat.completions.create(
        model="tiny", messages=MESSAGES, n=3, stream=True, max_tokens=1500, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()
    served.wait(lambda: served.blocks()["held"] == 0)
    assert served.metric("sluice_requests_total", outcome="abort") == aborted + 1  # one request, three samples


def test_the_best_of_several_has_the_highest_mean_logprob(client: OpenAI) -> None:
    asked = {
        "model": "tiny", "prompt": PROMPT, "seed": 2, "temperature": 1.5, "max_tokens": 8,
        "extra_body": {"ignore_eos": True},
    }  # fmt: skip
    every = client.completions.create(**asked, n=5, logprobs=0)  # type: ignore[call-overload]
    best = client.completions.create(**asked, best_of=5)  # type: ignore[call-overload]

    def mean(choice: openai.types.CompletionChoice) -> float:
        assert choice.logprobs is not None and choice.logprobs.token_logprobs
        return sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)

    assert best.choices[0].text == max(every.choices, key=mean).text
    assert best.choices[0].logprobs is None
    assert best.usage is not None and best.usage.completion_tokens == 5 * 8


def test_chat_logprobs_have_openais_shape(client: OpenAI) -> None:
    asked = {"model": "tiny", "messages": MESSAGES, "temperature": 0, "max_tokens": 12}
    answer = client.chat.completions.create(**asked, logprobs=True, top_logprobs=3)  # type: ignore[call-overload]
    choice = answer.choices[0]
    content = choice.logprobs.content
    assert len(content) == answer.usage.completion_tokens
    assert "".join(entry.token for entry in content) == choice.message.content
    for entry in content:
        assert bytes(entry.bytes).decode() == entry.token
        assert [top.logprob for top in entry.top_logprobs] == sorted(t.logprob for t in entry.top_logprobs)[::-1]
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token  # greedy
        assert entry.top_logprobs[0].logprob == entry.logprob <= 0.0
        assert sum(math.exp(top.logprob) for top in entry.top_logprobs) <= 1.0 + 1e-6
    bare = client.chat.completions.create(**asked, logprobs=True)  # type: ignore[call-overload]
    assert [entry.top_logprobs for entry in bare.choices[0].logprobs.content] == [[]] * len(content)


def test_streamed_chat_logprobs_equal_the_collected_ones(served: Served) -> None:
    asked = {
        "model": "tiny", "messages": MESSAGES, "temperature": 0, "max_tokens": 20, "logprobs": True,
        "top_logprobs": 2, "stop": ["zzz never"],
    }  # fmt: skip
    whole = served.request("POST", CHAT, asked).json()["choices"][0]["logprobs"]
    events = served.request("POST", CHAT, asked | {"stream": True}).body.decode().strip().split("\n\n")
    choices = [json.loads(event[6:])["choices"][0] for event in events[:-1]]
    entries = [entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    assert [entry["token"] for entry in entries] == [entry["token"] for entry in whole["content"]]
    for got, want in zip(entries, whole["content"], strict=True):
        assert got["logprob"] == pytest.approx(want["logprob"], abs=1e-4)
    shown = "".join(choice["delta"].get("content", "") for choice in choices)
    assert shown == "".join(entry["token"] for entry in entries)


def test_completion_logprobs_have_openais_shape(client: OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=PROMPT, temperature=1.0, seed=4, max_tokens=10, logprobs=2)
    choice = answer.choices[0]
    logprobs = choice.logprobs
    assert logprobs is not None and logprobs.tokens and logprobs.top_logprobs and logprobs.token_logprobs
    assert "".join(logprobs.tokens) == choice.text
    offset = 0
    assert logprobs.text_offset is not None
    for token, value, top, at in zip(
        logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, logprobs.text_offset, strict=True
    ):
        assert at == offset
        offset += len(token)
        assert top[token] == value
        assert 2 <= len(top) <= 3


def test_logprobs_end_where_the_text_does(client: OpenAI) -> None:
    asked = {"model": "tiny", "messages": MESSAGES, "temperature": 0, "logprobs": True}
    whole = client.chat.completions.create(**asked).choices[0]  # type: ignore[call-overload]
    text = whole.message.content
    stop = text[len(text) // 2 - 3 : len(text) // 2 + 4]
    cut = client.chat.completions.create(**asked, stop=stop).choices[0]  # type: ignore[call-overload]
    tokens = [entry.token for entry in cut.logprobs.content]
    assert tokens == [entry.token for entry in whole.logprobs.content][: len(tokens)]
    assert len("".join(tokens[:-1])) < len(cut.message.content) <= len("".join(tokens))


def test_a_bias_forces_a_token_and_its_logprob_stays_the_models(client: OpenAI, tiny_model: Path) -> None:
    (comma, *_) = load_text_model(tiny_model).encode_prompt(",")
    answer = client.completions.create(
        model="tiny", prompt=PROMPT, temperature=0, max_tokens=4, logit_bias={str(comma): 100}, logprobs=1
    )
    assert answer.choices[0].text == ",,,,"
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.token_logprobs
    assert min(value or 0.0 for value in logprobs.token_logprobs) < -0.1


def test_a_logit_bias_outside_the_vocabulary_is_rejected(client: OpenAI) -> None:
    for token in ("1024", "9999999999"):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="tiny", messages=MESSAGES, logit_bias={token: 1})
        assert caught.value.param == "logit_bias"


def test_penalties_stop_a_text_from_repeating_itself(client: OpenAI) -> None:
    def distinct(**fields: float) -> int:
        answer = client.chat.completions.create(
            model="tiny", messages=MESSAGES, temperature=0, max_tokens=60, logprobs=True,
            extra_body={"ignore_eos": True, **fields},
        )  # fmt: skip
        assert answer.choices[0].logprobs is not None and answer.choices[0].logprobs.content
        return len({tuple(entry.bytes or ()) for entry in answer.choices[0].logprobs.content})

    plain = distinct()
    assert distinct(presence_penalty=2, frequency_penalty=2) > plain
    assert distinct(repetition_penalty=2) > plain


def test_min_tokens_delays_end_of_sequence_and_stop_strings(client: OpenAI) -> None:
    plain = client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=0)
    assert plain.usage is not None
    length = plain.usage.completion_tokens
    longer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, temperature=0, max_tokens=length + 30, stop=[" "],
        extra_body={"min_tokens": length + 10},
    )  # fmt: skip
    assert longer.usage is not None
    assert longer.usage.completion_tokens >= length + 10
    assert longer.choices[0].message.content.startswith(plain.choices[0].message.content or "?")  # type: ignore[union-attr]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=4, extra_body={"min_tokens": 5})
    assert caught.value.param == "min_tokens"
