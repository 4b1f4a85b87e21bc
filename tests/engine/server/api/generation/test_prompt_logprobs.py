"""`echo` with `logprobs` scores a prompt as OpenAI's API does, and `prompt_logprobs` as vLLM's."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from openai import OpenAI
from transformers import AutoModelForCausalLM

from sluice_engine.request import TokenLogprob
from sluice_engine.server.api.generation.prompt import Encoded
from sluice_engine.server.api.generation.prompt_echo import MAX_VALUES, PromptEcho
from sluice_engine.text import TextModel, load_text_model
from tests.engine.serving import Served

COMPLETIONS = "/v1/completions"
PROMPTS = ["A replica is", "The scheduler admits a request", "W"]


@pytest.fixture
def client(served: Served) -> Iterator[OpenAI]:
    with served.client() as client:
        yield client


@pytest.fixture(scope="module")
def text(tiny_model: Path) -> TextModel:
    return load_text_model(tiny_model)


def reference(folder: Path, tokens: list[int]) -> list[float]:
    """The logprobs of all tokens but the first."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        table = model(torch.tensor([tokens])).logits[0, :-1].log_softmax(-1)
    return [float(row[token]) for row, token in zip(table, tokens[1:], strict=True)]


def complete(served: Served, **fields: Any) -> dict[str, Any]:
    answer = served.request("POST", COMPLETIONS, {"model": "tiny", "temperature": 0} | fields)
    assert answer.status == 200, answer.body
    return dict(answer.json())


@pytest.mark.parametrize("max_tokens", [0, 1, 5])
@pytest.mark.parametrize("as_ids", [False, True])
def test_a_prompt_is_scored_as_transformers_scores_it(
    served: Served, tiny_model: Path, text: TextModel, max_tokens: int, as_ids: bool
) -> None:
    """As lm-eval-harness asks: token ids, several prompts, 0 or 1 output tokens, and the sum over the continuation."""
    ids = [text.encode_prompt(prompt) for prompt in PROMPTS]
    for _ in range(2):  # the second time, the prompts are cached
        body = complete(
            served,
            prompt=ids if as_ids else PROMPTS,
            echo=True,
            max_tokens=max_tokens,
            logprobs=2,
            ignore_eos=True,
            skip_special_tokens=False,
        )
        assert body["usage"]["completion_tokens"] == max_tokens * len(PROMPTS)
        for choice, prompt, tokens in zip(body["choices"], PROMPTS, ids, strict=True):
            found = choice["logprobs"]
            assert choice["text"].startswith(prompt) and (max_tokens or choice["text"] == prompt)
            assert choice["finish_reason"] == "length"
            assert [len(found[name]) for name in sorted(found)] == [len(tokens) + max_tokens] * 4
            assert found["token_logprobs"][0] is None and found["top_logprobs"][0] is None
            assert found["token_logprobs"][1 : len(tokens)] == pytest.approx(reference(tiny_model, tokens), abs=1e-3)
            for token, value, top in list(
                zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True)
            )[1:]:
                assert top[token] == value and 2 <= len(top) <= 3
            ends = [*found["text_offset"][1:], len(choice["text"])]
            parts = [choice["text"][start:end] for start, end in zip(found["text_offset"], ends, strict=True)]
            assert "".join(parts) == choice["text"] and parts == found["tokens"]


@pytest.mark.parametrize("max_tokens", [0, 4])
def test_a_stream_has_the_same_logprobs_for_each_sample(client: OpenAI, max_tokens: int) -> None:
    fields: Any = {"model": "tiny", "prompt": PROMPTS, "n": 2, "temperature": 0, "max_tokens": max_tokens}
    fields |= {"echo": True, "logprobs": 1}
    whole = client.completions.create(**fields)
    texts, values, ended = [""] * 6, [[] for _ in range(6)], [""] * 6  # type: ignore[var-annotated]
    for chunk in client.completions.create(**fields, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            if choice.logprobs is not None:
                values[choice.index] += choice.logprobs.token_logprobs or []
            ended[choice.index] = choice.finish_reason or ended[choice.index]
    assert texts == [choice.text for choice in whole.choices]
    assert ended == [choice.finish_reason for choice in whole.choices]
    for got, choice in zip(values, whole.choices, strict=True):
        assert choice.logprobs is not None and choice.logprobs.token_logprobs is not None
        assert got[0] is None and got[1:] == pytest.approx(choice.logprobs.token_logprobs[1:], abs=1e-4)


def test_prompt_logprobs_have_vllms_shape(served: Served, tiny_model: Path, text: TextModel) -> None:
    tokens = text.encode_prompt(PROMPTS[1])
    body = complete(served, prompt=PROMPTS[1], max_tokens=2, prompt_logprobs=1, logprobs=3, n=2)
    for choice in body["choices"]:
        first, *others = choice["prompt_logprobs"]
        assert first is None and choice["text"] and not choice["text"].startswith(PROMPTS[1])
        assert len(choice["logprobs"]["tokens"]) <= 2
        for entry, token, want in zip(others, tokens[1:], reference(tiny_model, tokens), strict=True):
            own = entry[str(token)]
            assert own["logprob"] == pytest.approx(want, abs=1e-3)
            assert own["decoded_token"].encode() == text.token_bytes(token)
            assert (len(entry) == 1) == (own["rank"] == 1)
            assert min(entry.values(), key=lambda each: each["rank"])["rank"] == 1


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": False, "echo": True}, "max_tokens"),
        ({"max_tokens": -1, "echo": True}, "max_tokens"),
        ({"prompt": ["many words"] * 250, "n": 4, "logprobs": 20, "echo": True}, None),
    ],
)
def test_what_is_refused_names_the_field(served: Served, fields: dict[str, Any], param: str | None) -> None:
    answer = served.request("POST", COMPLETIONS, {"model": "tiny", "prompt": "A", "max_tokens": 1} | fields)
    assert answer.status == (200 if param is None else 400)
    assert param is None or answer.error["param"] == param


def test_a_response_has_a_largest_number_of_logprobs(served: Served) -> None:
    tokens = [[7] * 100] * 128
    answer = served.request(
        "POST", COMPLETIONS, {"model": "tiny", "prompt": tokens, "echo": True, "logprobs": 20, "max_tokens": 0}
    )
    assert MAX_VALUES < 128 * 100 * 21
    assert answer.status == 400 and answer.error["param"] == "prompt" and str(MAX_VALUES) in answer.error["message"]


def test_a_large_response_is_whole(served: Served) -> None:
    """Formatted in a thread: more values than the event loop formats itself."""
    tokens = [[7 + place % 50 for place in range(100)]] * 40
    body = complete(served, prompt=tokens, echo=True, logprobs=5, max_tokens=0)
    logprobs = [choice["logprobs"]["token_logprobs"] for choice in body["choices"]]
    assert len(logprobs) == 40 and all(each[1:] == pytest.approx(logprobs[0][1:], abs=1e-3) for each in logprobs)


def test_chats_refuse_prompt_logprobs(served: Served) -> None:
    messages = [{"role": "user", "content": "A"}]
    answer = served.request(
        "POST", "/v1/chat/completions", {"model": "tiny", "messages": messages, "prompt_logprobs": 1}
    )
    assert answer.status == 400 and answer.error["code"] == "unsupported_parameter"


def test_tokens_before_the_echoed_text_have_no_characters_of_it(text: TextModel) -> None:
    """A BOS token that the tokenizer adds is scored and not echoed."""
    tokens = text.encode_prompt("A replica is")
    name = text.token_bytes(0).decode()
    echo = PromptEcho(Encoded((0, *tokens), "A replica is", len(name)), text, top=0)
    pieces = [echo.opening(), *(echo.take([TokenLogprob(-1.0)]) for _ in tokens)]
    entries = [entry for piece in pieces for entry in piece.logprobs]
    assert "".join(piece.text for piece in pieces) == "A replica is"
    assert [entry.token for entry in entries] == [0, *tokens] and entries[0].logprob is None
    assert entries[0].start == entries[0].end == entries[1].start == 0
    assert entries[-1].end == len("A replica is")
    assert json.dumps([entry.start for entry in entries]) == json.dumps(sorted(entry.start for entry in entries))
