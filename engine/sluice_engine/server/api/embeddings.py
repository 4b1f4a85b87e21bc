"""POST /v1/embeddings returns one vector per text, as numbers or as base64 of little-endian float32."""

import base64
import math
import struct
import time
from dataclasses import dataclass
from typing import Any, Final

import orjson
from aiohttp import web

from sluice.httpapi.body import read_object
from sluice_engine.server.api.fields import Object, integer, invalid, only
from sluice_engine.server.api.generation.request_schema import check_model
from sluice_engine.server.api.request_fields import Fields, Form, fields, list_of
from sluice_engine.server.api.text_batch import (
    MAX_TEXTS,
    TEXT_FIELDS,
    TokenizedText,
    check_characters,
    check_length,
    compute,
    most_tokens,
    no_room,
    offload,
    scheduling_fields,
    too_long,
)
from sluice_engine.server.context import Serving
from sluice_engine.text.truncation import NoRoom

FORMATS: Final = ("float", "base64")
_TEXT: Final[Object] = {"type": "string", "minLength": 1}
_IDS: Final[Object] = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
FIELDS: Final[Fields] = {
    **TEXT_FIELDS,
    **fields(
        Form("input", {"anyOf": [_TEXT, _IDS, list_of(_TEXT, 1, MAX_TEXTS), list_of(_IDS, 1, MAX_TEXTS)]}),
        Form("encoding_format", {"type": "string", "enum": list(FORMATS)}),
        Form("dimensions", {"type": "integer", "minimum": 1}),  # at most as many as the model's vectors have
    ),
}
REQUIRED: Final = ("model", "input")
NORM_TOLERANCE: Final = 1e-3  # a vector whose norm is within this of 1 was normalized

Input = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A validated body. `dimensions` None means all dimensions, `most` None that no text is shortened."""

    inputs: tuple[Input, ...]
    params: tuple[str, ...]  # the name of each input in errors
    base64: bool
    dimensions: int | None
    most: int | None  # tokens per text


async def embeddings(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """POST /v1/embeddings."""
    body = await read_object(request)
    serving.check_loaded(request)
    arrived_at = time.monotonic()
    check_model(body, serving.served_name)
    serving.check_task("embed")
    parsed = _check(body, serving.ready.max_model_length, serving.ready.vector_size)
    scheduling = scheduling_fields(body, arrived_at)
    serving.check_accepting(request)
    characters = sum(len(each) for each in parsed.inputs)
    texts = await offload(serving, characters, lambda: _encode(serving, parsed))
    batch = await compute(request, serving, texts, scheduling)
    tail: dict[str, object] = {"model": serving.served_name, "usage": batch.usage}
    response = await offload(serving, sum(map(len, batch.vectors)), lambda: _body(batch.vectors, parsed, tail))
    return serving.response(request, 200, response, batch.headers)


def shortened(vector: bytes, dimensions: int) -> bytes:
    """Returns the first `dimensions` numbers, normalized again if the vector was normalized. float32, little-endian."""
    numbers = struct.unpack(f"<{len(vector) // 4}f", vector)
    first = numbers[:dimensions]
    length = math.hypot(*first)
    if length > 0 and abs(math.hypot(*numbers) - 1.0) < NORM_TOLERANCE:
        first = tuple(number / length for number in first)
    return struct.pack(f"<{dimensions}f", *first)


def _check(body: Object, longest: int, size: int) -> EmbeddingRequest:
    only(body, FIELDS)
    form = body.get("encoding_format")
    if form is not None and form not in FORMATS:
        raise invalid("encoding_format", "must be 'float' or 'base64'")
    dimensions = integer(body, "dimensions", 1, size)
    most = most_tokens(body, longest)
    inputs, params = _inputs(body.get("input"), longest, most)
    return EmbeddingRequest(inputs, params, form == "base64", dimensions, most)


def _inputs(value: Any, longest: int, most: int | None) -> tuple[tuple[Input, ...], tuple[str, ...]]:
    """Returns the texts (strings or token ids) and the name of each in errors."""
    if isinstance(value, str) or (isinstance(value, list) and value and type(value[0]) is int):
        return (_input(value, "input", longest, most),), ("input",)
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_TEXTS:
        raise invalid("input", f"must be a string, a list of token ids, or a list of 1 to {MAX_TEXTS} of either")
    if not all(isinstance(each, str | list) for each in value):
        raise invalid("input", "must hold strings, or lists of token ids, throughout")
    params = tuple(f"input[{index}]" for index in range(len(value)))
    return tuple(_input(each, param, longest, most) for each, param in zip(value, params, strict=True)), params


def _input(value: Any, param: str, longest: int, most: int | None) -> Input:
    if isinstance(value, str):
        if not value:
            raise invalid(param, "must not be empty")
        return value
    value = value[:most]
    if len(value) > longest:  # checked before each id: a body has room for millions
        raise too_long(param, str(len(value)), longest)
    if not value or set(map(type, value)) != {int} or min(value) < 0:
        raise invalid(param, "must be a non-empty string or a non-empty list of token ids")
    return tuple(value)


def _encode(serving: Serving, parsed: EmbeddingRequest) -> list[TokenizedText]:
    texts = []
    for param, each in zip(parsed.params, parsed.inputs, strict=True):
        texts.append(check_length(serving, TokenizedText(param, _tokens(serving, param, each, parsed.most))))
    return texts


def _tokens(serving: Serving, param: str, given: Input, most: int | None) -> tuple[int, ...]:
    if not isinstance(given, str):
        return given
    if most is None:
        check_characters(serving, param, given)
        return tuple(serving.text.encode_prompt(given))
    try:
        return tuple(serving.text.encode_first(given, most))
    except NoRoom as error:
        raise no_room(error) from error


def _body(vectors: list[bytes], parsed: EmbeddingRequest, tail: dict[str, object]) -> bytes:
    """Builds the response vector by vector, so that no single call holds the interpreter lock for long."""
    entries = (
        b'{"object":"embedding","index":%d,"embedding":%b}' % (index, _rendered(vector, parsed))
        for index, vector in enumerate(vectors)
    )
    return b'{"object":"list","data":[%b],%b' % (b",".join(entries), orjson.dumps(tail)[1:])


def _rendered(vector: bytes, parsed: EmbeddingRequest) -> bytes:
    if parsed.dimensions is not None:
        vector = shortened(vector, parsed.dimensions)
    if parsed.base64:
        return b'"%b"' % base64.b64encode(vector)
    return orjson.dumps(struct.unpack(f"<{len(vector) // 4}f", vector))
