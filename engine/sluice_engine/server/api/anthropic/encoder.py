"""Serializes an answer as Anthropic's API does: the message, the events of a stream, and errors."""

import json
import uuid
from collections.abc import Sequence
from typing import Any, Final

import orjson

from sluice_engine.server.api.generation.sse import ChatFormat, Encoder, Head
from sluice_engine.server.errors import ApiError
from sluice_engine.server.usage import Usage

STOP_REASONS: Final = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessagesFormat(ChatFormat):
    """The format of the Messages API."""

    prefix = "msg_"

    def complete(self, head: Head, choices: list[dict[str, Any]], usage: Usage) -> bytes:
        """Returns a whole message as JSON."""
        (choice,) = choices
        message, content = choice["message"], list[dict[str, Any]]()
        if message.get("reasoning_content"):
            content.append({"type": "thinking", "thinking": message["reasoning_content"], "signature": ""})
        if message.get("content"):
            content.append({"type": "text", "text": message["content"]})
        for call in message.get("tool_calls") or ():
            function = call["function"]
            content.append(_tool_use(function["name"]) | {"input": _object(function["arguments"])})
        return orjson.dumps(
            _message(head, usage) | {"content": content} | _ended(choice["finish_reason"], choice["stop_reason"])
        )

    def encoder(self, head: Head, choices: int, usage: Usage, *, include_usage: bool, continuous: bool) -> Encoder:
        """Returns the encoder of a streamed message."""
        return MessageEncoder(head, usage)


class MessageEncoder:
    """The events of one message. The methods are those of `generation.sse.Encoder`; there is one choice."""

    def __init__(self, head: Head, usage: Usage) -> None:
        self._head = head
        self._usage = usage
        self._index = -1  # of the open block
        self._open: tuple[str, int] | None = None  # its kind, and the index of a call
        self._ending = _ended("stop", None)

    def opening(self) -> bytes:
        """Returns the first event."""
        return _event({"type": "message_start", "message": _message(self._head, self._usage)})

    def text(self, text: str, index: int = 0, logprobs: dict[str, Any] | None = None) -> bytes:
        """Returns the events of more text."""
        return self.deltas([{"content": text}], index, logprobs)

    def deltas(self, deltas: Sequence[dict[str, Any]], index: int, logprobs: dict[str, Any] | None) -> bytes:
        """Returns the events of more text, reasoning and calls."""
        events: list[bytes] = []
        for delta in deltas:
            if text := delta.get("reasoning_content"):
                events.append(self._begun(("thinking", 0), {"type": "thinking", "thinking": "", "signature": ""}))
                events.append(self._delta({"type": "thinking_delta", "thinking": text}))
            if text := delta.get("content"):
                events.append(self._begun(("text", 0), {"type": "text", "text": ""}))
                events.append(self._delta({"type": "text_delta", "text": text}))
            for call in delta.get("tool_calls") or ():
                block = _tool_use(call["function"].get("name", "")) | {"input": {}}
                events.append(self._begun(("tool_use", call["index"]), block))
                if written := call["function"]["arguments"]:
                    events.append(self._delta({"type": "input_json_delta", "partial_json": written}))
        return b"".join(events)

    def finish(self, finish: str, index: int = 0, stop_string: str | None = None) -> bytes:
        """Returns the event that ends the last block."""
        self._ending = _ended(finish, stop_string)
        return self._end()

    def closing(self, usage: Usage) -> bytes:
        """Returns the last events."""
        last = {"type": "message_delta", "delta": self._ending, "usage": _usage(usage)}
        return _event(last) + _event({"type": "message_stop"})

    def error(self, body: bytes) -> bytes:
        """Returns the event of an error after the headers. `body` is OpenAI's error object."""
        return b"event: error\ndata: " + ApiError(json.loads(body)["error"]["message"]).anthropic_body() + b"\n\n"

    def _begun(self, kind: tuple[str, int], block: dict[str, Any]) -> bytes:
        if self._open == kind:
            return b""
        ended = self._end()
        self._open, self._index = kind, self._index + 1
        return ended + _event({"type": "content_block_start", "index": self._index, "content_block": block})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _end(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _event({"type": "content_block_stop", "index": self._index})


def _message(head: Head, usage: Usage) -> dict[str, Any]:
    return {
        "id": head.request_id, "type": "message", "role": "assistant", "model": head.model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": _usage(usage),
    }  # fmt: skip


def _ended(finish: str, stop_string: str | None) -> dict[str, str | None]:
    reason = "stop_sequence" if finish == "stop" and stop_string is not None else STOP_REASONS[finish]
    return {"stop_reason": reason, "stop_sequence": stop_string}


def _usage(usage: Usage) -> dict[str, int]:
    """Anthropic counts cached tokens of the prompt apart."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion,
    }


def _tool_use(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:24]}", "name": name}


def _object(arguments: str) -> Any:
    """The arguments as JSON; of a call that was cut, an empty object."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {}


def _event(event: dict[str, Any]) -> bytes:
    return b"event: " + event["type"].encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"
