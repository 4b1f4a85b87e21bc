"""/v1/embeddings over a real server: the official client, every form of input, rejections, disconnects, metrics."""

import base64
import http.client
import json
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from openai import OpenAI
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from sluice import contract
from tests.engine.serving import JSON, Served, serving
from tests.engine.texts import Reference, save_texts_model, save_tokenizer

PATH = "/v1/embeddings"
PATIENT = ("--ttft-ms", "60000")  # no target is missed on a busy machine
TEXTS = ["hello", "a longer text of several words", "b", "the quick brown fox jumps over the lazy dog again"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = save_texts_model("bert", tmp_path_factory.mktemp("bert"), pooling="mean_tokens", normalize=True)
    return save_tokenizer(made)


@pytest.fixture(scope="module")
def embeds(folder: Path) -> Iterator[Served]:
    with serving(folder, folder / "log", "--max-batched-tokens", "300", "--max-queue", "100", *PATIENT) as served:
        yield served


@pytest.fixture
def client(embeds: Served) -> Iterator[OpenAI]:
    with embeds.client() as client:
        yield client


def want(folder: Path, given: list[str]) -> tuple[list[list[int]], torch.Tensor]:
    """Returns the token ids and the vectors computed by transformers."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [tokenizer.encode(text).ids for text in given]
    return ids, Reference("bert", folder).rows(ids, "mean", normalize=True)


def vectors(answer: Any) -> torch.Tensor:
    assert [entry.index for entry in answer.data] == list(range(len(answer.data)))
    return torch.tensor([entry.embedding for entry in answer.data])


def test_strings_and_token_ids_one_or_many_are_embedded_as_transformers_does(client: OpenAI, folder: Path) -> None:
    ids, rows = want(folder, TEXTS)
    inputs: list[Any] = [TEXTS, ids, TEXTS[1], ids[1]]
    for given, expected in zip(inputs, [rows, rows, rows[1:2], rows[1:2]], strict=True):
        answer = client.embeddings.create(model="tiny", input=given)
        torch.testing.assert_close(vectors(answer), expected, rtol=1e-4, atol=1e-5)
        assert (
            answer.usage.prompt_tokens
            == answer.usage.total_tokens
            == sum(map(len, ids if len(expected) > 1 else [ids[1]]))
        )
        assert answer.model == "tiny"
        assert answer.object == "list"
        assert answer.data[0].object == "embedding"


def test_numbers_and_base64_encode_the_same_vectors(client: OpenAI, embeds: Served, folder: Path) -> None:
    rows = want(folder, TEXTS)[1]
    plain = client.embeddings.create(model="tiny", input=TEXTS, encoding_format="float")
    torch.testing.assert_close(vectors(plain), rows, rtol=1e-4, atol=1e-5)
    packed = embeds.request("POST", PATH, {"model": "tiny", "input": TEXTS, "encoding_format": "base64"}).json()
    for entry, told in zip(packed["data"], plain.data, strict=True):
        numbers = struct.unpack("<64f", base64.b64decode(entry["embedding"]))
        # The order of sums depends on the batch.
        torch.testing.assert_close(list(numbers), told.embedding, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("most", [3, 5, 2000])
def test_a_text_is_shortened_as_transformers_does(client: OpenAI, folder: Path, most: int) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ids = [list(tokenizer(text, truncation=True, max_length=min(most, 64))["input_ids"]) for text in TEXTS]
    rows = Reference("bert", folder).rows(ids, "mean", normalize=True)
    answer = client.embeddings.create(model="tiny", input=TEXTS, extra_body={"truncate_prompt_tokens": most})
    torch.testing.assert_close(vectors(answer), rows, rtol=1e-4, atol=1e-5)
    assert answer.usage.prompt_tokens == sum(map(len, ids))


def test_a_text_beyond_the_positions_is_shortened_to_them(client: OpenAI, embeds: Served) -> None:
    texts: list[Any] = ["many words " * 500, [5] * 3000]
    for text in texts:
        answer = client.embeddings.create(model="tiny", input=text, extra_body={"truncate_prompt_tokens": -1})
        refused = embeds.request("POST", PATH, {"model": "tiny", "input": text})
        assert refused.status == 400 and f"has {answer.usage.prompt_tokens} positions" in refused.body.decode()


def test_fewer_dimensions_are_the_first_ones_at_unit_length(client: OpenAI, folder: Path) -> None:
    rows = torch.nn.functional.normalize(want(folder, TEXTS)[1][:, :10], dim=-1)
    answer = client.embeddings.create(model="tiny", input=TEXTS, dimensions=10)
    torch.testing.assert_close(vectors(answer), rows, rtol=1e-4, atol=1e-5)


def test_a_call_of_more_texts_than_the_queue_holds_is_served(client: OpenAI, folder: Path) -> None:
    given = [TEXTS[index % 4] for index in range(1000)]
    answer = client.embeddings.create(model="tiny", input=given)
    rows = want(folder, TEXTS)[1]
    torch.testing.assert_close(vectors(answer), rows.repeat(250, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"input": None}, "input", "must be a string"),
        ({"input": ""}, "input", "must not be empty"),
        ({"input": []}, "input", "list of 1 to 2048"),
        ({"input": ["a"] * 2049}, "input", "list of 1 to 2048"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "must be −1"),
        ({"input": ["a", 5]}, "input", "throughout"),
        ({"input": ["a", ""]}, "input[1]", "must not be empty"),
        ({"input": [[5], []]}, "input[1]", "non-empty"),
        ({"input": [5, -1]}, "input", "token ids"),
        ({"input": [5, 1.5]}, "input", "token ids"),
        ({"input": [5, True]}, "input", "token ids"),
        ({"input": [[5], [5, 128]]}, "input[1]", "not below the vocabulary's size, 128"),
        ({"input": [[5], [5] * 257]}, "input[1]", "has 256 positions; input[1] has 257 tokens"),
        ({"input": "word " * 200}, "input", "has 256 positions; input has 802 tokens. Shorten it to at most 256"),
        ({"encoding_format": "int8"}, "encoding_format", "'float' or 'base64'"),
        ({"dimensions": 0}, "dimensions", "between 1 and 64"),
        ({"dimensions": 65}, "dimensions", "between 1 and 64"),
        ({"priority": 101}, "priority", "between -100 and 100"),
        ({"slo": {"ttft_ms": -1}}, "slo.ttft_ms", "above"),
        ({"user": 5}, "user", "string"),
        ({"temperature": 1}, "temperature", "Unknown field"),
    ],
)
def test_what_cannot_be_served_is_said(embeds: Served, change: dict[str, Any], param: str, words: str) -> None:
    answer = embeds.request("POST", PATH, {"model": "tiny", "input": "hello"} | change)
    assert answer.status == 400, answer.body
    assert answer.error["param"] == param
    assert words in answer.error["message"]


def test_an_unsupported_task_is_an_error_that_names_the_right_endpoint(
    embeds: Served, served: Served, client: OpenAI
) -> None:
    with pytest.raises(openai.BadRequestError, match="does not generate; it is served to embed: use /v1/embeddings"):
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}])
    rerank = embeds.request("POST", "/v1/rerank", {"model": "tiny", "query": "a", "documents": ["b"]})
    assert rerank.error["code"] == "model_not_supported"
    with served.client() as other, pytest.raises(openai.BadRequestError, match="use /v1/chat/completions"):
        other.embeddings.create(model="tiny", input="hi")
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input="hi")


def test_an_unreachable_deadline_is_rejected_and_counted(embeds: Served, client: OpenAI) -> None:
    for _ in range(600):  # the step-time model is used after fifty steps, and steps of a busy machine may not count
        client.embeddings.create(model="tiny", input=TEXTS)
        if embeds.metric(contract.STEP_MODEL_STEPS) > 60:
            break
    many = TEXTS * 100  # more texts than are submitted at once
    before = embeds.metric("sluice_rejections_total", reason="slo_unreachable")
    arrived = embeds.metric("sluice_requests_arrived_total")
    with pytest.raises(openai.InternalServerError) as refusal:
        client.embeddings.create(model="tiny", input=many, extra_body={"slo": {"ttft_ms": 0.0001}})
    assert refusal.value.code == "slo_unreachable"
    assert int(refusal.value.response.headers["retry-after"]) >= 1
    # A gateway retries the whole call on the next replica, which counts all its texts, so all count as rejected here.
    assert embeds.metric("sluice_rejections_total", reason="slo_unreachable") == before + len(many)
    assert embeds.metric("sluice_requests_arrived_total") == arrived + len(many)


def test_disconnects_and_concurrent_calls_leave_no_request_in_the_engine(embeds: Served, folder: Path) -> None:
    raw = {"model": "tiny", "input": ["some words to be read " * 4] * 200}

    def leave(_: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", embeds.port, timeout=30)
        connection.request("POST", PATH, json.dumps(raw), JSON)
        connection.close()

    def stay(_: int) -> int:
        return embeds.request("POST", PATH, {"model": "tiny", "input": TEXTS}).status

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, range(8)))
        statuses = set(pool.map(stay, range(24)))
    assert statuses <= {200, 503}
    embeds.wait(lambda: embeds.metric("sluice_requests_running") == embeds.metric("sluice_requests_waiting") == 0)
    embeds.wait(lambda: embeds.admin("GET", "/state").json()["requests"] == [])
    embeds.wait(lambda: embeds.blocks()["held"] == 0)


def test_metrics_count_texts_their_tokens_and_their_times(embeds: Served, client: OpenAI, folder: Path) -> None:
    names = ("sluice_requests_arrived_total", "sluice_prompt_tokens_total", "sluice_time_to_first_token_seconds_count")
    before = [embeds.metric(name) for name in names]
    done, met = (
        embeds.metric("sluice_requests_total", outcome="stop"),
        embeds.metric("sluice_slo_requests_total", result="met"),
    )
    generated = embeds.metric("sluice_generated_tokens_total")
    client.embeddings.create(model="tiny", input=TEXTS)
    tokens = sum(map(len, want(folder, TEXTS)[0]))
    assert [embeds.metric(name) - old for name, old in zip(names, before, strict=True)] == [4, tokens, 4]
    assert embeds.metric("sluice_requests_total", outcome="stop") == done + 4
    assert embeds.metric("sluice_slo_requests_total", result="met") == met + 4
    assert embeds.metric("sluice_generated_tokens_total") == generated
    assert embeds.metric("sluice_kv_occupancy_ratio") == 0
