"""Every request field with a wrong type or a value out of range is a 400 error that names the field."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.httpapi.body import parse_object
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.server.api.generation import request_schema, sampling_fields
from sluice_engine.server.api.generation.sampling_fields import Choices
from sluice_engine.server.api.request_fields import Field
from sluice_engine.server.errors import ApiError, BadRequest, NotFound, Unsupported
from sluice_engine.text import Message
from tests.counting import count_calls

CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION: dict[str, Any] = {"model": "tiny", "prompt": "hi"}
NOT_INTEGERS = ["5", 1.5, True, [], {}, 10**30]
NOT_NUMBERS = ["0.5", True, [], {}]


def chat(**fields: Any) -> request_schema.Generation:
    return request_schema.chat(CHAT | fields, "tiny")


def completion(**fields: Any) -> request_schema.Generation:
    return request_schema.completion(COMPLETION | fields, "tiny")


def test_defaults_are_openais() -> None:
    generation = chat()
    assert generation.messages == (Message("user", "hi"),)
    assert generation.choices == Choices(1, False, 0, SamplingParams(max_tokens=None))
    assert (generation.stream, generation.include_usage) == (False, False)
    assert (generation.priority, generation.ttft_target, generation.itl_target) == (0, None, None)


def test_all_supported_fields_are_parsed() -> None:
    generation = chat(
        max_completion_tokens=7, temperature=0, top_p=0.5, top_k=3, seed=-4, stop=["a", "b"], stream=True,
        stream_options={"include_usage": True}, user="u", ignore_eos=True, n=1, presence_penalty=0.0, tools=[],
    )  # fmt: skip
    assert generation.choices.params == SamplingParams(
        max_tokens=7, temperature=0.0, top_p=0.5, top_k=3, seed=-4, stop=("a", "b"), ignore_eos=True
    )
    assert generation.max_tokens_param == "max_completion_tokens"
    assert (generation.stream, generation.include_usage) == (True, True)


def test_sampling_fields_are_parsed() -> None:
    wanted = {
        "n": 3, "presence_penalty": -2, "frequency_penalty": 2.0, "repetition_penalty": 2, "min_p": 0.1,
        "logit_bias": {"0": -100, "1023": 2.5}, "min_tokens": 4,
    }  # fmt: skip
    for check in (chat, completion):
        params = SamplingParams(
            n=3, max_tokens=None, presence_penalty=-2.0, frequency_penalty=2.0, repetition_penalty=2.0, min_p=0.1,
            logit_bias={0: -100.0, 1023: 2.5},
        )  # fmt: skip
        assert check(**wanted).choices == Choices(3, False, 4, params)


@pytest.mark.parametrize("field", sampling_fields.COMPLETION.values(), ids=lambda field: field.name)
def test_a_sampling_field_that_is_null_is_the_same_as_one_that_is_absent(field: Field) -> None:
    assert completion(**{field.name: None}) == completion()


def test_logprobs_are_a_switch_and_a_number_in_chats_and_a_number_in_completions() -> None:
    assert chat(logprobs=True).choices.params.logprobs == 0
    assert chat(logprobs=True, top_logprobs=20).choices.params.logprobs == 20
    assert chat(logprobs=False).choices.params.logprobs is None
    assert completion(logprobs=0).choices.params.logprobs == 0
    assert completion(logprobs=5).choices.params.logprobs == 5
    for check, field, value in ((chat, "logprobs", 5), (completion, "logprobs", True), (completion, "logprobs", False)):
        with pytest.raises(BadRequest) as caught:
            check(**{field: value})
        assert caught.value.param == field
    with pytest.raises(BadRequest) as caught:
        chat(logprobs=False, top_logprobs=2)
    assert caught.value.param == "top_logprobs"


def test_best_of_requires_a_completion_at_least_n_and_no_stream() -> None:
    assert (completion(best_of=4, n=2).choices.params.n, completion(best_of=4).choices.n) == (4, 1)
    assert completion(best_of=2, n=2, stream=True).choices.ranked is False
    assert chat(best_of=1).choices.params.n == 1
    with pytest.raises(Unsupported):
        chat(best_of=2)
    for bad in ({"best_of": 2, "n": 3}, {"best_of": 2, "stream": True}):
        with pytest.raises(BadRequest) as caught:
            completion(**bad)
        assert caught.value.param == "best_of"


def test_a_million_logit_biases_are_rejected_quickly() -> None:
    bias = dict.fromkeys(map(str, range(10**6)), 1)

    def refused() -> None:
        with pytest.raises(BadRequest):
            chat(logit_bias=bias)

    assert count_calls(refused) < 10_000


def test_a_request_may_set_priority_and_slo() -> None:
    generation = completion(priority=-100, slo={"ttft_ms": 500, "itl_ms": 40.0})
    assert (generation.priority, generation.ttft_target, generation.itl_target) == (-100, 0.5, 0.04)
    assert (chat(priority=100).priority, chat(slo={"itl_ms": 80, "ttft_ms": None}).itl_target) == (100, 0.08)
    assert chat(slo={}).ttft_target is None


@pytest.mark.parametrize(
    ("slo", "param"),
    [
        ("fast", "slo"), ([500], "slo"), ({"ttft_ms": 0}, "slo.ttft_ms"), ({"itl_ms": -1}, "slo.itl_ms"),
        ({"itl_ms": "40"}, "slo.itl_ms"), ({"ttft_ms": True}, "slo.ttft_ms"), ({"ttft_ms": 1e9}, "slo.ttft_ms"),
        ({"e2e_ms": 5}, "slo.e2e_ms"),
    ],
)  # fmt: skip
def test_an_invalid_slo_error_names_its_field(slo: Any, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        chat(slo=slo)
    assert caught.value.param == param


def test_null_is_absent() -> None:
    assert (
        chat(**dict.fromkeys(["max_tokens", "temperature", "top_p", "seed", "stop", "stream", "n", "tools"])) == chat()
    )


@pytest.mark.parametrize("prompt", ["hi", ["hi"]])
def test_prompt_may_be_a_string_or_a_list_of_one(prompt: Any) -> None:
    assert completion(prompt=prompt).prompts == ("hi",)


@pytest.mark.parametrize("prompt", [[1, 2, 3], [[1, 2, 3]]])
def test_prompt_may_be_token_ids(prompt: Any) -> None:
    assert completion(prompt=prompt).prompts == ((1, 2, 3),)


@pytest.mark.parametrize(("prompt", "prompts"), [(["a", "b"], ("a", "b")), ([[1], [2, 3]], ((1,), (2, 3)))])
def test_prompt_may_be_several(prompt: Any, prompts: Any) -> None:
    assert completion(prompt=prompt).prompts == prompts


def test_text_parts_are_joined_and_developer_is_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    generation = chat(messages=[{"role": "developer", "content": "d"}, {"role": "user", "content": parts}])
    assert generation.messages == (Message("system", "d"), Message("user", "ab"))


OUT_OF_RANGE = [
    *(("max_tokens", value) for value in [-1, 0, 2**63, *NOT_INTEGERS]),
    *(("max_completion_tokens", value) for value in [-1, 0, 2**63, *NOT_INTEGERS]),
    *(("top_k", value) for value in [-1, 10**7, *NOT_INTEGERS]),
    *(("seed", value) for value in [2**63, -(2**63) - 1, *NOT_INTEGERS]),
    *((name, value) for name in ("n", "best_of") for value in [-1, 0, 17, 10**9, *NOT_INTEGERS]),
    *(("min_tokens", value) for value in [-1, 2**63, *NOT_INTEGERS]),
    *(("top_logprobs", value) for value in [-1, 0, 5, 21, *NOT_INTEGERS]),  # 0 and 5 require logprobs
    *((name, value) for name in ("presence_penalty", "frequency_penalty") for value in [-2.1, 2.1, 1e308, *NOT_NUMBERS]),
    *(("repetition_penalty", value) for value in [-1, 0, 0.0, 2.1, *NOT_NUMBERS]),
    *(("min_p", value) for value in [-0.1, 1.1, *NOT_NUMBERS]),
    *(("logprobs", value) for value in [-1, 21, 1.5, "1", [], {}]),
    *(("logit_bias", value) for value in [5, "x", [1], True, {"-1": 1}, {"x": 1}, {"01": 1}, {"1.5": 1}, {"": 1}]),
    *(("logit_bias", value) for value in [{"1": 101}, {"1": -101}, {"1": "2"}, {"1": True}, {"1": None}]),
    ("logit_bias", {str(token): 1 for token in range(1025)}), ("logit_bias", {"1" * 5000: 1}),
    *(("temperature", value) for value in [-0.1, 2.1, 1e308, *NOT_NUMBERS]),
    *(("top_p", value) for value in [-0.1, 0, 0.0, 1.1, *NOT_NUMBERS]),
    *((name, value) for name in ("stream", "ignore_eos") for value in [1, 0, "true", [], {}]),
    *(("stop", value) for value in [[], [""], "", 5, True, {}, [1], ["a"] * 5, "x" * 10**6, ["a", None]]),
    *(("stream_options", value) for value in [1, "x", [], True, {"include_usage": True}]),
    *(("user", value) for value in [1, [], "x" * 2000]),
    ("response_format", {"type": "yaml"}),
    ("functions", [{"name": "f"}]), ("tool_choice", "auto"), ("chat_template", "{{ 1 }}"), ("audio", {}), ("no_such_field", 1),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), OUT_OF_RANGE)
def test_a_field_out_of_range_is_rejected_by_name(field: str, value: Any) -> None:
    for check in (chat, completion):
        if check is completion and field == "max_completion_tokens":
            field = "max_tokens"
        with pytest.raises(BadRequest) as caught:
            check(**{field: value})
        assert caught.value.status == 400
        assert caught.value.param == field
        assert isinstance(caught.value.code, str)


BAD_MESSAGES: list[tuple[Any, str]] = [
    (None, "messages"),
    ([], "messages"),
    ("hi", "messages"),
    ({}, "messages"),
    ([{"role": "user", "content": "x"}] * 100_000, "messages"),
    ([1], "messages[0]"),
    ([{"content": "x"}], "messages[0].role"),
    ([{"role": "root", "content": "x"}], "messages[0].role"),
    ([{"role": ["user"], "content": "x"}], "messages[0].role"),
    ([{"role": "function", "content": "x"}], "messages[0].role"),
    ([{"role": "user"}], "messages[0].content"),
    ([{"role": "user", "content": None}], "messages[0].content"),
    ([{"role": "user", "content": []}], "messages[0].content"),
    ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": [], "text": "x"}]}], "messages[0].content[0]"),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        "messages[0].content[0].type",
    ),
    ([{"role": "user", "content": "x", "name": 5}], "messages[0].name"),
    ([{"role": "assistant", "content": "x", "tool_calls": [{}]}], "messages[0].tool_calls[0]"),
    ([{"role": "user", "content": "x", "surprise": 1}], "messages[0].surprise"),
]


@pytest.mark.parametrize(("messages", "param"), BAD_MESSAGES)
def test_invalid_messages_are_rejected_by_position(messages: Any, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        chat(messages=messages)
    assert caught.value.param == param


BAD_PROMPTS: list[Any] = [
    None,
    "",
    [],
    [-1],
    [True],
    [1.5],
    [1, "a"],
    ["a", [1]],
    ["a", ""],
    [[1], []],
    [[]],
    {},
    5,
    ["a"] * 100_000,
]


@pytest.mark.parametrize("prompt", BAD_PROMPTS)
def test_invalid_prompts_are_rejected(prompt: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        completion(prompt=prompt)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("model", ["other", "../../etc", "x" * 10_000])
def test_unknown_model_is_404_and_not_echoed(model: str) -> None:
    with pytest.raises(NotFound) as caught:
        chat(model=model)
    assert (caught.value.status, caught.value.code, caught.value.param) == (404, "model_not_found", "model")
    assert model not in caught.value.message


@pytest.mark.parametrize("model", [None, 5, ["tiny"]])
def test_model_must_be_a_string(model: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        chat(model=model)
    assert caught.value.param == "model"


def test_unsupported_features_have_their_own_code() -> None:
    with pytest.raises(Unsupported) as caught:
        chat(functions=[{"name": "f"}])
    assert caught.value.code == "unsupported_parameter"


NO_OBJECTS: list[bytes] = [
    b"", b" ", b"{", b"[]", b'"x"', b"null", b"5", b"[" * 100_000, b'{"a":' * 100_000, b'{"a": NaN}',
    b'{"a": Infinity}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": ' + b"9" * 5000 + b"}", b'{"a": "\xff"}',
    b'{"a": "\\ud800"}', b'{"a": "\xed\xa0\x80"}', b"{'a': 1}", b'{"a": 1,}', b"\xef\xbb\xbf{}", b'{"a": 1} x',
]  # fmt: skip


@pytest.mark.parametrize("body", NO_OBJECTS)
def test_a_body_that_is_no_strict_json_object_is_rejected(body: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_object(body)
    assert caught.value.code == "invalid_json"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(sorted({**request_schema.CHAT, **request_schema.COMPLETION}))


@given(st.dictionaries(fields, json_values, max_size=4))
def test_any_json_gives_a_request_or_an_api_error(body: dict[str, Any]) -> None:
    for base, check in ((CHAT, request_schema.chat), (COMPLETION, request_schema.completion)):
        try:
            generation = check(base | body, "tiny")
        except ApiError as error:
            assert 400 <= error.status < 500
        else:
            assert generation.choices.params.max_tokens is None or generation.choices.params.max_tokens >= 1
