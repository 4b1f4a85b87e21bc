"""Parses the messages of a chat: roles, text parts, tool calls and their results."""

from typing import Any, Final

from sluice_engine.server.api.fields import Object, invalid, only
from sluice_engine.server.api.generation.tool_fields import CALLS, past_calls
from sluice_engine.server.api.request_fields import Flag, Form, Neutral, fields, list_of, object_form
from sluice_engine.server.errors import BadRequest, Unsupported
from sluice_engine.text import Message
from sluice_engine.text import reasoning as thoughts

MAX_MESSAGES: Final = 4096
MAX_PARTS: Final = 1024
ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
UNSUPPORTED: Final = ("function_call", "audio")
IGNORED: Final = ("refusal", "annotations")  # of an answer that a client sends back
PREFIX: Final = Flag("prefix")  # the answer goes on from this message
PART: Final = object_form(
    fields(Form("type", {"const": "text"}), Form("text", {"type": "string"})), ("type", "text"), more=True
)
REFUSAL: Final = object_form(
    fields(Form("type", {"const": "refusal"}), Form("refusal", {"type": "string"})), ("type", "refusal"), more=True
)
CONTENT: Final[Object] = {"anyOf": [{"type": "string"}, list_of({"anyOf": [PART, REFUSAL]}, 1, MAX_PARTS)]}
FIELDS: Final = fields(
    Form("role", {"type": "string", "enum": sorted(ROLES)}),
    Form("content", CONTENT),
    *(Form(name, {"type": "string"}) for name in ("name", "tool_call_id")),
    CALLS,
    PREFIX,
    *(Form(name, {}) for name in IGNORED),
    *(Form(name, {"type": "string"}) for name in thoughts.FIELDS),
    *(Neutral(name, ({}, [], "", False, 0)) for name in UNSUPPORTED),
)
MESSAGES: Final = Form("messages", list_of(object_form(FIELDS, ("role",)), 1, MAX_MESSAGES))
_MEDIA: Final = frozenset({"image_url", "input_audio", "file", "video_url", "audio_url"})


def messages_of(body: Object) -> tuple[Message, ...]:
    """Returns the messages. Raises BadRequest, Unsupported."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not 1 <= len(messages) <= MAX_MESSAGES:
        raise invalid("messages", f"is required: a list of 1 to {MAX_MESSAGES} messages")
    return tuple(_message(message, f"messages[{index}]") for index, message in enumerate(messages))


def _message(message: Any, where: str) -> Message:
    if not isinstance(message, dict):
        raise invalid(where, "must be an object with role and content")
    for name in UNSUPPORTED:
        if message.get(name):
            instead = "send tool_calls" if name == "function_call" else "leave it out"
            raise Unsupported(f"{where}.{name} is not supported by this engine; {instead}.", param=f"{where}.{name}")
    only(message, FIELDS, f"{where}.")
    role = message.get("role")
    if not isinstance(role, str):
        raise invalid(f"{where}.role", "is required and must be a string")
    if role == "function":
        raise Unsupported(f"{where}.role 'function' is not supported by this engine; use tool.", param=f"{where}.role")
    if role not in ROLES:
        raise invalid(f"{where}.role", "must be one of system, user, assistant, tool")
    for name in ("name", "tool_call_id", *thoughts.FIELDS):
        if not isinstance(message.get(name), str | None):
            raise invalid(f"{where}.{name}", "must be a string")
    if message.get("tool_calls") and role != "assistant":
        raise invalid(f"{where}.tool_calls", "belongs to messages of the assistant")
    calls = past_calls(message, where)
    content = message.get("content")
    reasoning = (
        next((message[name] for name in thoughts.FIELDS if message.get(name)), "") if role == "assistant" else ""
    )
    if content is None and role == "assistant" and isinstance(message.get("refusal"), str):
        content = message["refusal"]
    text = "" if content is None and (calls or reasoning) else _content(content, f"{where}.content", role)
    fields: dict[str, Any] = {"tool_calls": [call.as_json() for call in calls]} if calls else {}
    if role == "tool":
        fields |= {name: message[name] for name in ("name", "tool_call_id") if message.get(name)}
    is_prefix = message.get(PREFIX.name)
    if not isinstance(is_prefix, bool | None):
        raise invalid(f"{where}.{PREFIX.name}", "must be true or false")
    if is_prefix and role != "assistant":
        raise invalid(f"{where}.prefix", "belongs to messages of the assistant")
    return Message("system" if role == "developer" else role, text, fields, reasoning, bool(is_prefix))


def _content(content: Any, where: str, role: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not 1 <= len(content) <= MAX_PARTS:
        raise invalid(where, "must be a string or a non-empty list of text parts")
    return "".join(_part(part, f"{where}[{index}]", role) for index, part in enumerate(content))


def _part(part: Any, where: str, role: str) -> str:
    if not isinstance(part, dict):
        raise invalid(where, "must be an object with type and text")
    kind = part.get("type")
    if isinstance(kind, str) and kind in _MEDIA:
        raise Unsupported(
            f"{where}.type {kind!r} is not supported: only text is. Leave the part out, or describe it as text.",
            param=f"{where}.type",
        )
    kinds = ("text", "refusal") if role == "assistant" else ("text",)
    if kind not in kinds or not isinstance(part.get(kind), str):
        raise BadRequest(f"{where} must be {{type: 'text', text: string}}.", param=where, code="invalid_value")
    return str(part[kind])
