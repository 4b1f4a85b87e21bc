"""What the gateway reads of a request's body: the model, and the text whose prefix may be cached.

Nothing else is read, and nothing is refused here: an engine judges the body. The text is that of the conversation in the
order in which every chat template renders it; a turn of a chat begins with the text of the turn before.
"""

from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json, to_json

from sluice import contract

_TEXT_FIELDS: Final = ("system", "instructions", "tools", "messages", "input", "prompt")  # in order of rendering
_CACHED_PATHS: Final = frozenset(
    {contract.PATH_CHAT_COMPLETIONS, contract.PATH_COMPLETIONS, contract.PATH_RESPONSES, contract.PATH_MESSAGES}
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """`model` is None where the body names none. `text` is empty where no prefix can be cached. `salt` separates it."""

    model: str | None = None
    text: bytes = b""
    salt: str = ""


def read_conversation(path: str, body: bytes) -> Conversation:
    """The conversation of a request; an empty one if the body is not a JSON object."""
    try:
        document = from_json(body, allow_inf_nan=False, cache_strings=False)
    except ValueError:
        return Conversation()
    if not isinstance(document, dict):
        return Conversation()
    model, salt = document.get("model"), document.get("cache_salt")
    text = b"" if path not in _CACHED_PATHS else b"".join(_rendered(document.get(name)) for name in _TEXT_FIELDS)
    return Conversation(model if isinstance(model, str) else None, text, salt if isinstance(salt, str) else "")


def _rendered(value: Any) -> bytes:
    """One field as bytes: messages one after the other, so that a longer conversation begins with a shorter one."""
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, list):
        return b"".join(map(_message, value))
    return to_json(value)


def _message(value: Any) -> bytes:
    if isinstance(value, dict) and value.keys() == {"role", "content"} and isinstance(value["content"], str):
        return f"\n{value['role']}\n{value['content']}".encode("utf-8", "surrogatepass")
    return b"\n" + to_json(value)
