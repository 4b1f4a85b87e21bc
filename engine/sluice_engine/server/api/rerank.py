"""POST /v1/rerank and /v1/score return a cross-encoder's scores of pairs of texts.

`rerank` follows the API of Cohere and Jina (a query, documents, results by relevance). `score` follows the API of vLLM
(two texts, or lists of them, scored pair by pair).
"""

import struct
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final

import orjson
from aiohttp import web

from sluice.httpapi.body import MAX_BODY_BYTES, read_object
from sluice_engine.server.api.fields import Object, invalid, only
from sluice_engine.server.api.generation.accepted_fields import TRUNCATE
from sluice_engine.server.api.generation.request_schema import check_model
from sluice_engine.server.api.request_fields import Fields, Flag, Form, Integer, fields, list_of, object_form
from sluice_engine.server.api.text_batch import (
    MAX_TEXTS,
    TEXT_FIELDS,
    BatchResult,
    SchedulingFields,
    TokenizedText,
    check_characters,
    check_length,
    compute,
    most_tokens,
    no_room,
    offload,
    scheduling_fields,
)
from sluice_engine.server.context import Serving
from sluice_engine.server.errors import BadRequest
from sluice_engine.text.truncation import NoRoom

_TEXT: Final[Object] = {"type": "string", "minLength": 1}
_DOCUMENT: Final = object_form(fields(Form("text", _TEXT)), ("text",))
TOP_N: Final = Integer("top_n", 1, 2**31)
RETURN_DOCUMENTS: Final = Flag("return_documents", True)
PER_DOCUMENT: Final = Integer("max_tokens_per_doc", 1, 2**31)
RERANK: Final[Fields] = {
    **TEXT_FIELDS,
    **fields(
        Form("query", _TEXT),
        Form("documents", list_of({"anyOf": [_TEXT, _DOCUMENT]}, 1, MAX_TEXTS)),
        TOP_N,
        RETURN_DOCUMENTS,
        PER_DOCUMENT,
    ),
}
RERANK_REQUIRED: Final = ("model", "query", "documents")
_TEXTS: Final[Object] = {"anyOf": [_TEXT, list_of(_TEXT, 1, MAX_TEXTS)]}
SCORE: Final[Fields] = {**TEXT_FIELDS, **fields(Form("text_1", _TEXTS), Form("text_2", _TEXTS))}
SCORE_REQUIRED: Final = ("model", "text_1", "text_2")
# The query is encoded again with each document, so the total size of the pairs is bounded, not only the body's.
MAX_CHARACTERS: Final = 4 * MAX_BODY_BYTES

Pair = tuple[str, str, str]  # first text, second text, name of the pair in errors


async def rerank(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """POST /v1/rerank."""
    body, scheduling = await _begin(request, serving, RERANK)
    query = _text(body.get("query"), "query")
    documents = [_document(each, f"documents[{i}]") for i, each in enumerate(_list(body, "documents"))]
    most = TOP_N.of(body) or len(documents)
    with_documents = RETURN_DOCUMENTS.of(body)
    _check_per_document(body, serving.ready.max_model_length)
    pairs = [(query, document, f"documents[{index}]") for index, document in enumerate(documents)]
    scores, batch = await _scores(
        request, serving, pairs, scheduling, most_tokens(body, serving.ready.max_model_length)
    )
    best = sorted(range(len(scores)), key=lambda index: -scores[index])[:most]
    results = [
        {"index": index}
        | ({"document": {"text": documents[index]}} if with_documents else {})
        | {"relevance_score": scores[index]}
        for index in best
    ]
    response = {"id": f"rerank-{uuid.uuid4().hex}", "model": serving.served_name, "results": results}
    return serving.response(request, 200, orjson.dumps(response | {"usage": batch.usage}), batch.headers)


async def score(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """POST /v1/score."""
    body, scheduling = await _begin(request, serving, SCORE)
    first, second = (_texts(body, name) for name in ("text_1", "text_2"))
    if len(first) not in (1, len(second)):
        raise invalid("text_1", f"must be one text or as many as text_2, which has {len(second)}; it has {len(first)}")
    if len(first) == 1:
        first *= len(second)
    pairs = [(one, two, f"text_2[{index}]") for index, (one, two) in enumerate(zip(first, second, strict=True))]
    scores, batch = await _scores(
        request, serving, pairs, scheduling, most_tokens(body, serving.ready.max_model_length)
    )
    response = {
        "id": f"score-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": serving.served_name,
        "data": [{"index": index, "object": "score", "score": each} for index, each in enumerate(scores)],
        "usage": batch.usage,
    }
    return serving.response(request, 200, orjson.dumps(response), batch.headers)


def _check_per_document(body: Object, longest: int) -> None:
    """Raises BadRequest for a limit that would shorten a document that the model can read."""
    most = PER_DOCUMENT.of(body)
    if most is not None and most < longest:
        raise invalid(
            PER_DOCUMENT.name,
            f"is supported from {longest} on, the model's context, because documents are not shortened on their own; "
            f"{TRUNCATE.name} shortens a query with its document",
        )


async def _begin(request: web.BaseRequest, serving: Serving, known: Fields) -> tuple[Object, SchedulingFields]:
    body = await read_object(request)
    serving.check_loaded(request)
    arrived_at = time.monotonic()
    check_model(body, serving.served_name)
    serving.check_task("score")
    only(body, known)
    return body, scheduling_fields(body, arrived_at)


async def _scores(
    request: web.BaseRequest, serving: Serving, pairs: Sequence[Pair], scheduling: SchedulingFields, most: int | None
) -> tuple[list[float], BatchResult]:
    serving.check_accepting(request)
    characters = sum(len(first) + len(second) for first, second, _ in pairs)
    if characters > MAX_CHARACTERS:
        raise BadRequest(
            f"The pairs have {characters} characters in all, and at most {MAX_CHARACTERS} are read in one call; send "
            "fewer documents at once.",
            code="invalid_value",
        )
    texts = await offload(serving, characters, lambda: [_encoded(serving, pair, most) for pair in pairs])
    batch = await compute(request, serving, texts, scheduling)
    return [struct.unpack("<f", vector)[0] for vector in batch.vectors], batch


def _encoded(serving: Serving, pair: Pair, most: int | None) -> TokenizedText:
    first, second, param = pair
    for each in (first, second) if most is None else ():
        check_characters(serving, param, each)
    try:
        tokens, types = serving.text.encode_pair(first, second, most)
    except NoRoom as error:
        raise no_room(error) from error
    return check_length(serving, TokenizedText(param, tuple(tokens), tuple(types) if any(types) else ()))


def _texts(body: Object, name: str) -> list[str]:
    value = body.get(name)
    if isinstance(value, str):
        return [_text(value, name)]
    return [_text(each, f"{name}[{index}]") for index, each in enumerate(_list(body, name))]


def _list(body: Object, name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_TEXTS:
        raise invalid(name, f"is required: 1 to {MAX_TEXTS} texts")
    return value


def _document(value: Any, param: str) -> str:
    if isinstance(value, dict):
        only(value, frozenset({"text"}), f"{param}.")
        value = value.get("text")
    return _text(value, param)


def _text(value: Any, param: str) -> str:
    if not isinstance(value, str) or not value:
        raise invalid(param, "must be a non-empty string")
    return value
