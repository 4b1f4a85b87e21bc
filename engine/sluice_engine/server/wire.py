"""The bytes of OpenAI's responses: one object for a whole answer, Server-Sent Events for a streamed one.

The part of an event that is the same for every token of a request is encoded once; per token only its text is.
"""

from dataclasses import dataclass
from typing import Any, Final

import orjson

DONE: Final = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Usage:
    """Tokens of one request, as they are counted while it runs."""

    prompt: int
    cached: int = 0
    completion: int = 0

    def as_json(self) -> dict[str, Any]:
        """OpenAI's usage object."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


class ChatWire:
    """`chat.completion` and `chat.completion.chunk`."""

    prefix = "chatcmpl-"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self) -> dict[str, Any] | None:
        """The choice of the first event: who speaks."""
        return {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def text_choice(self, text: str) -> dict[str, Any]:
        """A choice that carries text."""
        return {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}

    def last_choice(self, finish: str) -> dict[str, Any]:
        """The choice that says why the answer ended."""
        return {"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish}

    def whole_choice(self, text: str, finish: str) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}


class CompletionWire:
    """`text_completion`, streamed or not."""

    prefix = "cmpl-"
    kind = "text_completion"
    chunk_kind = "text_completion"

    def opening(self) -> dict[str, Any] | None:
        """Completions open with their first text."""
        return None

    def text_choice(self, text: str) -> dict[str, Any]:
        """A choice that carries text."""
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": None}

    def last_choice(self, finish: str) -> dict[str, Any]:
        """The choice that says why the answer ended."""
        return {"index": 0, "text": "", "logprobs": None, "finish_reason": finish}

    def whole_choice(self, text: str, finish: str) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""
        return self.text_choice(text) | {"finish_reason": finish}


Wire = ChatWire | CompletionWire


def whole(wire: Wire, request_id: str, created: int, model: str, text: str, finish: str, usage: Usage) -> bytes:
    """A complete answer."""
    return orjson.dumps(
        {
            "id": request_id,
            "object": wire.kind,
            "created": created,
            "model": model,
            "choices": [wire.whole_choice(text, finish)],
            "usage": usage.as_json(),
        }
    )


class EventEncoder:
    """The events of one streamed answer."""

    def __init__(self, wire: Wire, request_id: str, created: int, model: str, include_usage: bool) -> None:
        self._wire = wire
        self._include_usage = include_usage
        head = {"id": request_id, "object": wire.chunk_kind, "created": created, "model": model}
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        # The text is the only part that changes from token to token: split an example around it.
        before, _, after = orjson.dumps(wire.text_choice("\x00")).partition(b'"\\u0000"')
        self._before = self._head + before
        self._after = after + self._tail

    def opening(self) -> bytes:
        """The first event, where this kind of answer has one."""
        choice = self._wire.opening()
        return b"" if choice is None else self._event(choice)

    def text(self, text: str) -> bytes:
        """An event with text; nothing for none."""
        return self._before + orjson.dumps(text) + self._after if text else b""

    def closing(self, finish: str, usage: Usage) -> bytes:
        """The last events: finish reason, usage if it was asked for, [DONE]."""
        parts = [self._event(self._wire.last_choice(finish))]
        if self._include_usage:
            parts.append(self._head + b'],"usage":' + orjson.dumps(usage.as_json()) + b"}\n\n")
        parts.append(DONE)
        return b"".join(parts)

    def error(self, body: bytes) -> bytes:
        """An error after the headers are gone: `body` is OpenAI's error object. Then the connection closes."""
        return b"data: " + body + b"\n\n"

    def _event(self, choice: dict[str, Any]) -> bytes:
        return self._head + orjson.dumps(choice) + self._tail
