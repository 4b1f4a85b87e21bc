"""/v1/rerank and /v1/score over a real server with a cross-encoder."""

import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from sluice import contract
from sluice.httpapi.connection_limits import ADMIN_CONNECTIONS, MAX_REJECTED, OTHER_FILES
from tests.engine.serving import Served, serving
from tests.engine.texts import Reference, save_texts_model, save_tokenizer

FILES = 640
PLACES = FILES - ADMIN_CONNECTIONS - OTHER_FILES
CROWD = PLACES + MAX_REJECTED + 100
QUERY = "what is a cat"
DOCUMENTS = ["a small animal", "the sea is deep and cold in winter", "cats purr", "iron"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tokenizer(save_texts_model("bert-score", tmp_path_factory.mktemp("bert-score")))


@pytest.fixture(scope="module")
def scores(folder: Path) -> Iterator[Served]:
    """A server with an open-file limit of FILES, which leaves only PLACES connections for its data port."""
    with serving(folder, folder / "log", open_files=FILES) as served:
        yield served


def want(folder: Path, pairs: list[tuple[str, str]]) -> tuple[int, list[float]]:
    """Returns the total of tokens and the scores computed by transformers for these pairs with their token types."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoded = [tokenizer.encode(first, second) for first, second in pairs]
    ids, types = [each.ids for each in encoded], [each.type_ids for each in encoded]
    rows = Reference("bert-score", folder).rows(ids, "cls", normalize=False, types=types)
    return sum(map(len, ids)), rows[:, 0].tolist()


def post(served: Served, path: str, **body: Any) -> Any:
    answer = served.request("POST", path, {"model": "tiny"} | body)
    assert answer.status == 200, answer.body
    assert int(answer.headers["x-sluice-queue-ms"]) >= 0
    return answer.json()


def test_documents_are_ranked_by_transformers_own_scores(scores: Served, folder: Path) -> None:
    tokens, rows = want(folder, [(QUERY, document) for document in DOCUMENTS])
    answer = post(scores, "/v1/rerank", query=QUERY, documents=[{"text": DOCUMENTS[0]}, *DOCUMENTS[1:]])
    best = sorted(range(4), key=lambda index: -rows[index])
    assert [result["index"] for result in answer["results"]] == best
    assert [result["document"]["text"] for result in answer["results"]] == [DOCUMENTS[index] for index in best]
    torch.testing.assert_close(
        [result["relevance_score"] for result in answer["results"]],
        [rows[index] for index in best],
        rtol=1e-4,
        atol=1e-5,
    )
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    few = post(scores, "/v1/rerank", query=QUERY, documents=DOCUMENTS, top_n=2, return_documents=False)
    assert [result["index"] for result in few["results"]] == best[:2]
    assert all("document" not in result for result in few["results"])


def test_every_path_of_other_servers_gives_the_same_answer(scores: Served) -> None:
    ranked = [post(scores, path, query=QUERY, documents=DOCUMENTS)["results"] for path in contract.PATHS_RERANK]
    scored = [post(scores, path, text_1=QUERY, text_2=DOCUMENTS)["data"] for path in contract.PATHS_SCORE]
    assert (len(ranked), len(scored)) == (3, 2)
    for answers, figure in ((ranked, "relevance_score"), (scored, "score")):
        for answer in answers:
            assert [each["index"] for each in answer] == [each["index"] for each in answers[0]]
            assert [each[figure] for each in answer] == pytest.approx([each[figure] for each in answers[0]], abs=1e-5)


@pytest.mark.parametrize("most", [6, 9, 12, 15])
def test_a_pair_is_shortened_as_transformers_does(scores: Served, folder: Path, most: int) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    given = [tokenizer(QUERY, text, truncation=True, max_length=most, return_token_type_ids=True) for text in DOCUMENTS]
    ids, types = ([list(each[name]) for each in given] for name in ("input_ids", "token_type_ids"))
    rows = Reference("bert-score", folder).rows(ids, "cls", normalize=False, types=types)[:, 0].tolist()
    answer = post(scores, "/v1/score", text_1=QUERY, text_2=DOCUMENTS, truncate_prompt_tokens=most)
    torch.testing.assert_close([each["score"] for each in answer["data"]], rows, rtol=1e-4, atol=1e-5)
    assert answer["usage"]["prompt_tokens"] == sum(map(len, ids))


def test_pairs_are_scored_one_to_one_and_one_to_many(scores: Served, folder: Path) -> None:
    cases: list[tuple[Any, Any, list[tuple[str, str]]]] = [
        (QUERY, DOCUMENTS[0], [(QUERY, DOCUMENTS[0])]),
        (QUERY, DOCUMENTS, [(QUERY, document) for document in DOCUMENTS]),
        (DOCUMENTS, DOCUMENTS[::-1], list(zip(DOCUMENTS, DOCUMENTS[::-1], strict=True))),
    ]
    for first, second, pairs in cases:
        answer = post(scores, "/v1/score", text_1=first, text_2=second)
        told = [entry["score"] for entry in answer["data"]]
        torch.testing.assert_close(told, want(folder, pairs)[1], rtol=1e-4, atol=1e-5)
        assert [entry["index"] for entry in answer["data"]] == list(range(len(pairs)))
        assert answer["object"] == "list"


def test_a_limit_of_each_document_that_shortens_none_is_accepted(scores: Served) -> None:
    asked = {"query": QUERY, "documents": DOCUMENTS}
    ranked = post(scores, "/v2/rerank", **asked)["results"]
    longer = post(scores, "/v2/rerank", **asked, max_tokens_per_doc=4096)["results"]
    assert [each["index"] for each in longer] == [each["index"] for each in ranked]
    found, expected = ([each["relevance_score"] for each in results] for results in (longer, ranked))
    assert found == pytest.approx(expected, abs=1e-5)  # texts that arrive together may be computed in other groups
    given = scores.request("POST", "/v2/rerank", {"model": "tiny", **asked, "max_tokens_per_doc": 10})
    assert "documents are not shortened on their own; truncate_prompt_tokens shortens" in given.error["message"]


@pytest.mark.parametrize(
    ("path", "change", "param"),
    [
        ("/v1/rerank", {"query": ""}, "query"),
        ("/v1/rerank", {"query": 5}, "query"),
        ("/v1/rerank", {"documents": []}, "documents"),
        ("/v1/rerank", {"documents": ["a"] * 2049}, "documents"),
        ("/v1/rerank", {"documents": ["a", 5]}, "documents[1]"),
        ("/v1/rerank", {"documents": [{"image": "a"}]}, "documents[0].image"),
        ("/v1/rerank", {"documents": ["a", "word " * 300]}, "documents[1]"),
        ("/v1/rerank", {"top_n": 0}, "top_n"),
        ("/v1/rerank", {"return_documents": 1}, "return_documents"),
        ("/v1/rerank", {"max_tokens_per_doc": 10}, "max_tokens_per_doc"),
        ("/v1/rerank", {"max_tokens_per_doc": "4096"}, "max_tokens_per_doc"),
        ("/v1/rerank", {"input": "a"}, "input"),
        ("/v1/rerank", {"query": "a" * 40_000, "documents": ["b"] * 2000}, None),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["c"]}, "text_1"),
        ("/v1/score", {"text_1": "a"}, "text_2"),
        ("/v1/score", {"text_1": "a", "text_2": "b", "truncate_prompt_tokens": 1}, "truncate_prompt_tokens"),
    ],
)
def test_what_cannot_be_served_is_said(scores: Served, path: str, change: dict[str, Any], param: str | None) -> None:
    body = {"query": "a", "documents": ["b"]} if path == "/v1/rerank" else {}
    answer = scores.request("POST", path, {"model": "tiny"} | body | change)
    assert answer.status == 400, answer.body
    assert answer.error["param"] == param


def test_a_model_that_scores_neither_embeds_nor_generates(scores: Served) -> None:
    for path, body in (("/v1/embeddings", {"input": "a"}), ("/v1/completions", {"prompt": "a"})):
        answer = scores.request("POST", path, {"model": "tiny"} | body)
        assert answer.status == 400
        assert "it is served to score: use /v1/rerank" in answer.error["message"]


def test_many_clients_are_served_and_health_and_metrics_stay_reachable(scores: Served) -> None:
    with ExitStack() as stack:
        crowd = [
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", scores.port)))) for _ in range(CROWD)
        ]
        for path in ("/livez", "/readyz", "/metrics"):
            assert scores.admin("GET", path).status == 200
        assert len(ended(crowd)) < CROWD  # all connections were open during these requests
        scores.wait(lambda: len(ended(crowd)) == CROWD - PLACES)
        told = [raw for raw in ended(crowd) if raw]
        assert 1 <= len(told) <= MAX_REJECTED
        for raw in told:
            assert raw.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After: 1\r\n" in raw
            assert b'"code":"connections_full"' in raw
    scores.wait(
        lambda: scores.request("POST", "/v1/score", {"model": "tiny", "text_1": "a", "text_2": "b"}).status == 200
    )


def ended(crowd: list[socket.socket]) -> list[bytes]:
    """Returns the responses of all connections that the server has closed; b"" for an aborted connection."""
    found: list[bytes] = []
    for each in crowd:
        each.setblocking(False)
        try:
            found.append(each.recv(4096, socket.MSG_PEEK))
        except BlockingIOError:
            continue
        except ConnectionResetError:
            found.append(b"")
    return found


def test_a_drain_finishes_accepted_requests_and_exits(scores: Served) -> None:  # last test: the server exits
    documents = ["many words to be read by the model " * 6] * 600
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(post, scores, "/v1/rerank", query=QUERY, documents=documents, return_documents=False)
        scores.wait(lambda: scores.metric("sluice_requests_waiting") > 0)
        scores.signal(signal.SIGTERM)
        assert len(answer.result()["results"]) == 600
    assert scores.process.wait(60) == 0
