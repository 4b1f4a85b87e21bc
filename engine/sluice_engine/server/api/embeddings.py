"""POST /v1/embeddings returns one vector per text, as numbers or as base64 of little-endian float32."""

import base64
import math
import struct
import time
from dataclasses import dataclass
from typing import Any, Final

import orjson
from aiohttp import web

from sluice_engine.server.api.fields import Object, integer, invalid, only
from sluice_engine.server.api.request_schema import check_model
from sluice_engine.server.api.text_batch import (
    MAX_TEXTS,
    Text,
    check_characters,
    check_length,
    compute,
    offload,
    too_long,
    urgency,
)
from sluice_engine.server.context import Serving
from sluice_engine.server.transport.body import read_object

FIELDS: Final = frozenset({"model", "input", "encoding_format", "dimensions", "user", "priority", "slo"})
UNIT: Final = 1e-3  # a vector whose norm is within this of 1 was normalized

Input = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """A validated body. `dimensions` None means all dimensions."""

    inputs: tuple[Input, ...]
    params: tuple[str, ...]  # the name of each input in errors
    base64: bool
    dimensions: int | None


async def embeddings(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """POST /v1/embeddings."""
    body = await read_object(request)
    serving.check_loaded(request)
    arrived_at = time.monotonic()
    check_model(body, serving.served_name)
    serving.check_task("embed")
    wish = _check(body, serving.ready.max_model_length, serving.ready.vector_size)
    how = urgency(body, arrived_at)
    serving.check_accepting(request)
    characters = sum(len(each) for each in wish.inputs)
    texts = await offload(serving, characters, lambda: _encode(serving, wish))
    computed = await compute(request, serving, texts, how)
    tail: dict[str, object] = {"model": serving.served_name, "usage": computed.usage}
    answer = await offload(serving, sum(map(len, computed.vectors)), lambda: _body(computed.vectors, wish, tail))
    return serving.response(request, 200, answer, computed.headers)


def shortened(vector: bytes, dimensions: int) -> bytes:
    """Returns the first `dimensions` numbers, normalized again if the vector was normalized. float32, little-endian."""
    numbers = struct.unpack(f"<{len(vector) // 4}f", vector)
    first = numbers[:dimensions]
    length = math.hypot(*first)
    if length > 0 and abs(math.hypot(*numbers) - 1.0) < UNIT:
        first = tuple(number / length for number in first)
    return struct.pack(f"<{dimensions}f", *first)


def _check(body: Object, longest: int, size: int) -> Wish:
    only(body, FIELDS)
    form = body.get("encoding_format")
    if form not in (None, "float", "base64"):
        raise invalid("encoding_format", "must be 'float' or 'base64'")
    dimensions = integer(body, "dimensions", 1, size)
    inputs, params = _inputs(body.get("input"), longest)
    return Wish(inputs, params, form == "base64", dimensions)


def _inputs(given: Any, longest: int) -> tuple[tuple[Input, ...], tuple[str, ...]]:
    """Returns the texts (strings or token ids) and the name of each in errors."""
    if isinstance(given, str) or (isinstance(given, list) and given and type(given[0]) is int):
        return (_input(given, "input", longest),), ("input",)
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_TEXTS:
        raise invalid("input", f"must be a string, a list of token ids, or a list of 1 to {MAX_TEXTS} of either")
    if not all(isinstance(each, str | list) for each in given):
        raise invalid("input", "must hold strings, or lists of token ids, throughout")
    params = tuple(f"input[{index}]" for index in range(len(given)))
    return tuple(_input(each, param, longest) for each, param in zip(given, params, strict=True)), params


def _input(given: Any, param: str, longest: int) -> Input:
    if isinstance(given, str):
        if not given:
            raise invalid(param, "must not be empty")
        return given
    if len(given) > longest:  # checked before each id: a body has room for millions
        raise too_long(param, str(len(given)), longest)
    if not given or set(map(type, given)) != {int} or min(given) < 0:
        raise invalid(param, "must be a non-empty string or a non-empty list of token ids")
    return tuple(given)


def _encode(serving: Serving, wish: Wish) -> list[Text]:
    texts = []
    for param, each in zip(wish.params, wish.inputs, strict=True):
        if isinstance(each, str):
            check_characters(serving, param, each)
            tokens = tuple(serving.text.encode_prompt(each))
        else:
            tokens = each
        texts.append(check_length(serving, Text(param, tokens)))
    return texts


def _body(vectors: list[bytes], wish: Wish, tail: dict[str, object]) -> bytes:
    """Builds the response vector by vector, so that no single call holds the interpreter lock for long."""
    entries = (
        b'{"object":"embedding","index":%d,"embedding":%b}' % (index, _rendered(vector, wish))
        for index, vector in enumerate(vectors)
    )
    return b'{"object":"list","data":[%b],%b' % (b",".join(entries), orjson.dumps(tail)[1:])


def _rendered(vector: bytes, wish: Wish) -> bytes:
    if wish.dimensions is not None:
        vector = shortened(vector, wish.dimensions)
    if wish.base64:
        return b'"%b"' % base64.b64encode(vector)
    return orjson.dumps(struct.unpack(f"<{len(vector) // 4}f", vector))
