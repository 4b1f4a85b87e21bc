"""What the gateway reads of a request's body: the model, the scheduling fields, and the text whose prefix may be cached.

Of a field's bounds only those that the gateway itself relies on are checked here: an engine judges the rest. The text is that
of the conversation in the order in which every chat template renders it; a turn of a chat begins with the text of the turn
before. Only as much of it is rendered as the routing policy hashes.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec
import orjson

from sluice import contract
from sluice.httpapi.body import parse_object
from sluice.httpapi.errors import BadRequest
from sluice.httpapi.nesting import too_deep

MAX_TEXT: Final = 1024 * 1024  # bytes that are rendered; the routing policy hashes no more
LARGE_BYTES: Final = 512 * 1024  # of a body of which only the fields that are read become objects
MAX_MESSAGES: Final = 4096  # that are rendered; more are rarely a conversation
_TOKEN_BYTES: Final = 8  # of a token id as text, with its comma
_TEXT_FIELDS: Final = ("system", "instructions", "tools", "messages", "input", "prompt")  # in order of rendering
_CACHED_PATHS: Final = frozenset(
    {contract.PATH_CHAT_COMPLETIONS, contract.PATH_COMPLETIONS, contract.PATH_RESPONSES, contract.PATH_MESSAGES}
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """`model` is None where the body names none. `text` is empty where no prefix can be cached. `salt` separates it.

    `ttft_seconds` is the request's own target for its first token, None without one.
    """

    model: str | None = None
    text: bytes = b""
    salt: str = ""
    priority: int = 0
    ttft_seconds: float | None = None
    resume: bool = False


class _Fields(msgspec.Struct):
    """The fields that are read; the texts as JSON. A body of 8 MiB may be a million objects."""

    model: Any = None
    cache_salt: Any = None
    priority: Any = None
    slo: Any = None
    resume: Any = None
    system: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()


def read_conversation(path: str, body: bytes) -> Conversation:
    """The conversation of a request. Raises BadRequest."""
    document = parse_object(body) if len(body) < LARGE_BYTES else _large_object(body)
    model, salt = document.get("model"), document.get("cache_salt")
    if model is not None and not isinstance(model, str):
        raise BadRequest("model must be a string.", param="model", code="invalid_value")
    if isinstance(document.get(contract.FIELD_RESUME), dict):
        raise BadRequest(
            "resume must be true or false: with true, the gateway itself adds the tokens of a broken stream.",
            param=contract.FIELD_RESUME,
            code="invalid_value",
        )
    return Conversation(
        model,
        _text(document) if path in _CACHED_PATHS else b"",
        salt if isinstance(salt, str) else "",
        _priority(document.get("priority")),
        _ttft_seconds(document.get("slo")),
        document.get(contract.FIELD_RESUME) is True,
    )


def _large_object(body: bytes) -> dict[str, Any]:
    """The fields that are read, and of each text so much that MAX_TEXT bytes of it are whole."""
    try:
        found = msgspec.structs.asdict(msgspec.json.decode(body, type=_Fields))
        return {name: _beginning(value) if isinstance(value, msgspec.Raw) else value for name, value in found.items()}
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadRequest(f"The body is not a JSON object: {error}.", code="invalid_json") from error


def _beginning(raw: msgspec.Raw) -> Any:
    text = bytes(raw)
    if not text:
        return None
    from pydantic_core import from_json  # 3 MiB, which only a gateway with large bodies takes

    try:
        return from_json(text[:MAX_TEXT], allow_partial="trailing-strings", allow_inf_nan=False, cache_strings=False)
    except ValueError as error:
        if "recursion limit" in str(error):
            raise too_deep() from error
        raise


def _priority(value: Any) -> int:
    """0 for a value that an engine refuses."""
    return value if type(value) is int and abs(value) <= contract.MAX_PRIORITY else 0


def _ttft_seconds(slo: Any) -> float | None:
    value = slo.get("ttft_ms") if isinstance(slo, dict) else None
    return value / 1000.0 if isinstance(value, int | float) and 0 < value <= 1e9 else None


def _text(document: dict[str, Any]) -> bytes:
    parts, left = list[bytes](), MAX_TEXT
    for name in _TEXT_FIELDS:
        value = document.get(name)
        if value is not None and left > 0:
            parts.append(_rendered(_prompt_of(value) if name == "system" else value, left)[:left])
            left -= len(parts[-1])
    return b"".join(parts)


def _prompt_of(system: Any) -> Any:
    """It without the block that engines leave out, too: it differs between conversations, and stands before all."""
    return [block for block in system if not _is_attribution(block)] if isinstance(system, list) else system


def _is_attribution(block: Any) -> bool:
    return isinstance(block, dict) and str(block.get("text")).startswith(contract.ATTRIBUTION)


def _rendered(value: Any, most: int) -> bytes:
    """One field as bytes, at least the first `most` of them: a longer conversation begins with a shorter one's bytes."""
    if isinstance(value, str):
        return value[:most].encode()
    if isinstance(value, list) and value and isinstance(value[0], int):  # token ids: there may be millions
        return orjson.dumps(value[: most // _TOKEN_BYTES + 1])[:-1] + b","
    if isinstance(value, list):
        return b"".join(_message(one, most) for one in islice(value, MAX_MESSAGES))
    return orjson.dumps(value)


def _message(value: Any, most: int) -> bytes:
    if isinstance(value, dict) and value.keys() == {"role", "content"} and isinstance(value["content"], str):
        return f"\n{value['role']}\n{value['content'][:most]}".encode()
    if isinstance(value, list):  # one of several prompts
        return b"\n" + _rendered(value, most)
    return b"\n" + orjson.dumps(value)
