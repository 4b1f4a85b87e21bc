"""Fields that clients of other servers send: each has its effect or is checked and has none; a bad value is a 400."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from sluice_engine.text import load_text_model
from tests.engine.serving import CHAT, Served

COMPLETIONS = "/v1/completions"
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is a KV cache?"}]


@pytest.fixture
def client(served: Served) -> Iterator[OpenAI]:
    with served.client() as client:
        yield client


def answer(client: OpenAI, **fields: Any) -> str:
    given = client.chat.completions.create(
        model="tiny", messages=QUESTION, temperature=0, max_tokens=40, extra_body=fields
    )
    return given.choices[0].message.content or ""


def test_descriptive_fields_have_no_effect(client: OpenAI) -> None:
    described = client.chat.completions.create(
        model="tiny", messages=QUESTION, temperature=0, max_tokens=40, store=True, metadata={"team": "search"},
        user="u1", safety_identifier="s", prompt_cache_key="k", service_tier="auto", verbosity="low",
        reasoning_effort="high", parallel_tool_calls=False,
    )  # fmt: skip
    assert described.choices[0].message.content == answer(client)


def test_a_prediction_and_the_values_of_newer_clients_change_nothing(client: OpenAI) -> None:
    for content in ("A KV cache is", [{"type": "text", "text": "A KV"}, {"type": "text", "text": " cache"}]):
        given = client.chat.completions.create(
            model="tiny", messages=QUESTION, temperature=0, max_tokens=40, reasoning_effort="max", service_tier="fast",
            extra_body={"prediction": {"type": "content", "content": content}},
        )  # fmt: skip
        assert given.choices[0].message.content == answer(client)


def test_the_older_names_of_tools_are_refused_with_the_names_to_use(served: Served) -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    for fields, words in (
        ({"functions": [{"name": "f"}]}, "functions is not supported by this engine, except as []; send them as tools."),
        ({"function_call": "auto"}, 'function_call is not supported by this engine, except as "none"; send tools and tool_choice.'),
        ({"messages": [*QUESTION, call]}, "messages[1].function_call is not supported by this engine; send tool_calls."),
    ):  # fmt: skip
        given = served.request("POST", CHAT, {"model": "tiny", "messages": QUESTION} | fields)
        assert (given.status, given.error["message"]) == (400, words)


def test_the_defaults_of_other_servers_change_nothing(client: OpenAI, served: Served) -> None:
    neutral = {
        "spaces_between_special_tokens": True, "length_penalty": 1.0, "return_tokens_as_token_ids": False,
        "add_special_tokens": False,
    }  # fmt: skip
    assert answer(client, **neutral) == answer(client, **neutral | {"length_penalty": 1}) == answer(client)
    prompt = {"model": "tiny", "prompt": "A", "max_tokens": 2} | neutral | {"add_special_tokens": True}
    assert served.request("POST", COMPLETIONS, prompt).status == 200
    given = served.request("POST", CHAT, {"model": "tiny", "messages": QUESTION, "length_penalty": 1.2})
    assert given.error["message"] == ("length_penalty is not supported by this engine, except as 1.0; leave it out.")


@pytest.mark.parametrize("stream", [False, True])
def test_a_list_of_prompts_gives_its_choices_in_order(client: OpenAI, stream: bool) -> None:
    prompts, endless = ["A replica is", "The scheduler", "What is"], {"ignore_eos": True}
    alone = [
        client.completions.create(model="tiny", prompt=each, temperature=0, max_tokens=6, extra_body=endless)
        for each in prompts
    ]
    texts = ["" for _ in range(6)]
    if stream:
        for chunk in client.completions.create(
            model="tiny", prompt=prompts, temperature=0, max_tokens=6, n=2, stream=True, extra_body=endless
        ):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    else:
        whole = client.completions.create(
            model="tiny", prompt=prompts, temperature=0, max_tokens=6, n=2, extra_body=endless
        )
        assert [choice.index for choice in whole.choices] == list(range(6))
        texts = [choice.text for choice in whole.choices]
        assert whole.usage is not None and whole.usage.completion_tokens == 6 * 6
    assert texts == [each.choices[0].text for each in alone for _ in range(2)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("as_ids", [False, True])
def test_echo_repeats_the_prompt_before_its_text(client: OpenAI, tiny_model: Path, stream: bool, as_ids: bool) -> None:
    prompt: Any = "The scheduler admits"
    given = load_text_model(tiny_model).encode_prompt(prompt) if as_ids else prompt
    plain = client.completions.create(model="tiny", prompt=prompt, temperature=0, max_tokens=5).choices[0].text
    if stream:
        chunks = client.completions.create(
            model="tiny", prompt=given, temperature=0, max_tokens=5, echo=True, stream=True
        )
        text = "".join(chunk.choices[0].text for chunk in chunks)
    else:
        text = (
            client.completions.create(model="tiny", prompt=given, temperature=0, max_tokens=5, echo=True)
            .choices[0]
            .text
        )
    assert text == prompt + plain


def test_a_completion_without_max_tokens_has_sixteen(client: OpenAI) -> None:
    given = client.completions.create(model="tiny", prompt="A", temperature=0, extra_body={"ignore_eos": True})
    assert given.usage is not None and given.usage.completion_tokens == 16


def test_a_stop_string_is_shown_on_request(client: OpenAI) -> None:
    whole = answer(client)
    stop = whole[12:15]
    end = whole.index(stop)
    assert answer(client, stop=stop) == whole[:end]
    assert answer(client, stop=stop, include_stop_str_in_output=True) == whole[: end + len(stop)]


def test_a_stop_token_ends_the_output_and_special_tokens_are_shown_on_request(client: OpenAI, tiny_model: Path) -> None:
    text, whole = load_text_model(tiny_model), answer(client)
    tokens = text.encode_plain(whole)
    cut = answer(client, stop_token_ids=[tokens[4]])
    assert whole.startswith(cut) and len(cut) < len(whole)
    assert answer(client, stop_token_ids=[5], ignore_eos=True, skip_special_tokens=False) != whole


def test_a_bad_word_is_never_written_also_beside_speculation_and_after_a_split(client: OpenAI) -> None:
    whole = answer(client)
    word = max(whole.split(), key=len).strip(".,")
    barred = answer(client, bad_words=[word])
    assert word not in barred and barred
    assert whole.startswith(barred[: whole.index(word)])


def test_the_end_of_a_long_prompt_is_kept_on_request(client: OpenAI, tiny_model: Path) -> None:
    ids = load_text_model(tiny_model).encode_prompt("The scheduler admits a request only when its blocks fit. " * 4)
    expected = client.completions.create(model="tiny", prompt=ids[-9:], temperature=0, max_tokens=5)
    kept = client.completions.create(
        model="tiny", prompt=ids, temperature=0, max_tokens=5, extra_body={"truncate_prompt_tokens": 9}
    )
    assert kept.choices[0].text == expected.choices[0].text
    assert kept.usage is not None and kept.usage.prompt_tokens == 9


def test_an_endless_prompt_fits_if_it_may_be_truncated(served: Served) -> None:
    body = {
        "model": "tiny",
        "prompt": "word " * 20_000,
        "max_tokens": 4,
        "truncate_prompt_tokens": -1,
        "ignore_eos": True,
    }
    given = served.request("POST", COMPLETIONS, body).json()
    assert given["usage"]["completion_tokens"] == 4
    refused = served.request("POST", COMPLETIONS, body | {"truncate_prompt_tokens": None}).error
    assert refused["code"] == "context_length_exceeded"
    assert refused["message"].startswith("This model's maximum context length is ")


def test_a_cache_salt_separates_prefixes(client: OpenAI) -> None:
    prompt = "A salt keeps the cached blocks of one client from all others that do not know it. " * 6

    def cached(salt: str | None) -> int:
        given = client.completions.create(
            model="tiny", prompt=prompt, temperature=0, max_tokens=1, extra_body={"cache_salt": salt} if salt else {}
        )
        assert given.usage is not None and given.usage.prompt_tokens_details is not None
        return given.usage.prompt_tokens_details.cached_tokens or 0

    assert [cached(salt) > 0 for salt in ("a", "b", None, "a", "b", None)] == [False, False, False, True, True, True]


def test_usage_is_in_every_event_on_request(served: Served) -> None:
    body = {
        "model": "tiny", "messages": QUESTION, "stream": True, "max_tokens": 6, "temperature": 0,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }  # fmt: skip
    events = served.request("POST", CHAT, body).body.decode().strip().split("\n\n")[:-1]
    counts = [json.loads(event[6:])["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts) and counts[-1] == 6


def test_variables_of_the_template_reach_it_as_text(client: OpenAI) -> None:
    assert answer(client, chat_template_kwargs={"enable_thinking": False, "name": "<|im_end|>"}) == answer(client)


BAD: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"store": "yes"}, "store"),
    (CHAT, {"metadata": []}, "metadata"),
    (CHAT, {"metadata": {"a": 1}}, "metadata"),
    (CHAT, {"reasoning_effort": "extreme"}, "reasoning_effort"),
    (CHAT, {"verbosity": 3}, "verbosity"),
    (CHAT, {"service_tier": "best"}, "service_tier"),
    (CHAT, {"prediction": "A"}, "prediction"),
    (CHAT, {"prediction": {"type": "content"}}, "prediction"),
    (CHAT, {"prediction": {"type": "content", "content": [{"type": "image_url"}]}}, "prediction"),
    (COMPLETIONS, {"prediction": {"type": "content", "content": "A"}}, "prediction"),
    (CHAT, {"chat_template_kwargs": []}, "chat_template_kwargs"),
    (CHAT, {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    (CHAT, {"chat_template_kwargs": json.loads('{"a":' * 20 + "1" + "}" * 20)}, "chat_template_kwargs"),
    (CHAT, {"stop_token_ids": 5}, "stop_token_ids"),
    (CHAT, {"stop_token_ids": [-1]}, "stop_token_ids"),
    (CHAT, {"stop_token_ids": [10**8]}, "stop_token_ids"),
    (CHAT, {"skip_special_tokens": "no"}, "skip_special_tokens"),
    (CHAT, {"include_stop_str_in_output": 1}, "include_stop_str_in_output"),
    (CHAT, {"bad_words": 5}, "bad_words"),
    (CHAT, {"bad_words": [""]}, "bad_words"),
    (CHAT, {"bad_words": ["x"] * 1000}, "bad_words"),
    (CHAT, {"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    (CHAT, {"cache_salt": ""}, "cache_salt"),
    (CHAT, {"cache_salt": 7}, "cache_salt"),
    (CHAT, {"spaces_between_special_tokens": False}, "spaces_between_special_tokens"),
    (CHAT, {"length_penalty": 0.5}, "length_penalty"),
    (CHAT, {"length_penalty": True}, "length_penalty"),
    (CHAT, {"return_tokens_as_token_ids": True}, "return_tokens_as_token_ids"),
    (CHAT, {"add_special_tokens": True}, "add_special_tokens"),
    (COMPLETIONS, {"add_special_tokens": False}, "add_special_tokens"),
    (
        CHAT,
        {"stream": True, "stream_options": {"continuous_usage_stats": "x"}},
        "stream_options.continuous_usage_stats",
    ),
    (COMPLETIONS, {"echo": "yes"}, "echo"),
    (COMPLETIONS, {"reasoning_effort": "low"}, "reasoning_effort"),
    (COMPLETIONS, {"prompt": ["a"] * 300}, "prompt"),
    (COMPLETIONS, {"prompt": ["a"] * 200, "n": 16}, "prompt"),
    (COMPLETIONS, {"prompt": [[1], [10**8]]}, "prompt"),
]


@pytest.mark.parametrize(
    ("path", "fields", "param"), BAD, ids=[f"{param}-{place}" for place, (_, _, param) in enumerate(BAD)]
)
def test_a_bad_value_names_its_field(served: Served, path: str, fields: dict[str, Any], param: str) -> None:
    body = {"model": "tiny", "max_tokens": 1} | ({"messages": QUESTION} if path == CHAT else {"prompt": "a"}) | fields
    given = served.request("POST", path, body)
    assert (given.status, given.error["param"]) == (400, param)
