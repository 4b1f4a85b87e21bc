"""Serializes OpenAI's responses: one object for a complete response, Server-Sent Events for a stream.

The part of an event that is equal for all tokens of a request is encoded once. Only the text is encoded per token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

from sluice_engine.server.api.generation.logprobs import Vocabulary, chat_logprobs, completion_logprobs
from sluice_engine.server.usage import Usage
from sluice_engine.text import Entry

DONE: Final = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Head:
    """What every object and event of a response has."""

    request_id: str
    created: int
    model: str


class Encoder(Protocol):
    """Encodes the events of one streamed response."""

    def opening(self) -> bytes:
        """Returns the first events."""

    def text(self, text: str, index: int = 0, logprobs: dict[str, Any] | None = None) -> bytes:
        """Returns the events of more text."""

    def deltas(self, deltas: Sequence[dict[str, Any]], index: int, logprobs: dict[str, Any] | None) -> bytes:
        """Returns the events of more text, reasoning and calls of a chat's message."""

    def finish(self, finish: str, index: int = 0, stop_string: str | None = None) -> bytes:
        """Returns the events at the end of sample `index`."""

    def closing(self, usage: Usage) -> bytes:
        """Returns the last events."""

    def error(self, body: bytes) -> bytes:
        """Returns the event of an error after the headers. `body` is OpenAI's error object."""


class ResponseFormat(Protocol):
    """How an answer is written."""

    @property
    def prefix(self) -> str:
        """The prefix of ids."""

    def complete_choice(
        self, index: int, text: str, finish: str, logprobs: dict[str, Any] | None, stop_string: str | None = None
    ) -> dict[str, Any]:
        """Returns the choice of a response that is not streamed."""

    def logprobs(self, entries: list[Entry], vocabulary: Vocabulary) -> dict[str, Any]:
        """Returns the `logprobs` of a choice."""

    def complete(self, head: Head, choices: list[dict[str, Any]], usage: Usage) -> bytes:
        """Returns a whole response as JSON."""

    def encoder(self, head: Head, choices: int, usage: Usage, *, include_usage: bool, continuous: bool) -> Encoder:
        """Returns the encoder of a streamed response with so many samples. `usage` is updated meanwhile;
        `include_usage`: the stream ends with it, `continuous`: every event has it.
        """


class ChatFormat:
    """The formats `chat.completion` and `chat.completion.chunk`."""

    prefix = "chatcmpl-"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any] | None:
        """Returns the first event of sample `index`, which holds the role."""
        return {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def text_choice(self, index: int, text: str, logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns a choice with text."""
        return {"index": index, "delta": {"content": text}, "logprobs": logprobs, "finish_reason": None}

    def last_choice(self, index: int, finish: str, stop_string: str | None = None) -> dict[str, Any]:
        """Returns the choice with the finish reason of sample `index`."""
        ended = {"finish_reason": finish, "stop_reason": stop_string}  # stop_reason: as vLLM names it
        return {"index": index, "delta": {}, "logprobs": None, **ended}

    def complete_choice(
        self, index: int, text: str, finish: str, logprobs: dict[str, Any] | None, stop_string: str | None = None
    ) -> dict[str, Any]:
        """Returns the choice of a response that is not streamed."""
        message = {"role": "assistant", "content": text, "refusal": None}
        ended = {"finish_reason": finish, "stop_reason": stop_string}
        return {"index": index, "message": message, "logprobs": logprobs, **ended}

    def logprobs(self, entries: list[Entry], vocabulary: Vocabulary) -> dict[str, Any]:
        """Returns the `logprobs` of a choice."""
        return chat_logprobs(entries, vocabulary)

    def complete(self, head: Head, choices: list[dict[str, Any]], usage: Usage) -> bytes:
        """Returns a whole response as JSON."""
        return _complete(self.kind, head, choices, usage)

    def encoder(self, head: Head, choices: int, usage: Usage, *, include_usage: bool, continuous: bool) -> Encoder:
        """Returns the encoder of a streamed response."""
        return EventEncoder(self, head, include_usage, choices, usage if continuous else None)


class CompletionFormat:
    """The format `text_completion`, streamed or not."""

    prefix = "cmpl-"
    kind = "text_completion"
    chunk_kind = "text_completion"

    def opening(self, _: int) -> dict[str, Any] | None:
        """Returns None: a completion begins with its first text."""
        return None

    def text_choice(self, index: int, text: str, logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns a choice with text."""
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}

    def last_choice(self, index: int, finish: str, stop_string: str | None = None) -> dict[str, Any]:
        """Returns the choice with the finish reason of sample `index`."""
        return {"index": index, "text": "", "logprobs": None, "finish_reason": finish, "stop_reason": stop_string}

    def complete_choice(
        self, index: int, text: str, finish: str, logprobs: dict[str, Any] | None, stop_string: str | None = None
    ) -> dict[str, Any]:
        """Returns the choice of a response that is not streamed."""
        return self.text_choice(index, text, logprobs) | {"finish_reason": finish, "stop_reason": stop_string}

    def logprobs(self, entries: list[Entry], vocabulary: Vocabulary) -> dict[str, Any]:
        """Returns the `logprobs` of a choice."""
        return completion_logprobs(entries, vocabulary)

    def complete(self, head: Head, choices: list[dict[str, Any]], usage: Usage) -> bytes:
        """Returns a whole response as JSON."""
        return _complete(self.kind, head, choices, usage)

    def encoder(self, head: Head, choices: int, usage: Usage, *, include_usage: bool, continuous: bool) -> Encoder:
        """Returns the encoder of a streamed response."""
        return EventEncoder(self, head, include_usage, choices, usage if continuous else None)


def _complete(kind: str, head: Head, choices: list[dict[str, Any]], usage: Usage) -> bytes:
    named = {"id": head.request_id, "object": kind, "created": head.created, "model": head.model}
    return orjson.dumps(named | {"choices": choices, "usage": usage.as_json()})


class EventEncoder:
    """Encodes the events of one streamed response with `choices` samples.

    With `running`, every event has this usage as it is at the time.
    """

    def __init__(
        self,
        response_format: ChatFormat | CompletionFormat,
        head: Head,
        include_usage: bool,
        choices: int = 1,
        running: Usage | None = None,
    ) -> None:
        self._format = response_format
        self._include_usage = include_usage
        self._running = running
        named = {"id": head.request_id, "object": response_format.chunk_kind, "created": head.created}
        self._head = b"data: " + orjson.dumps(named | {"model": head.model})[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._text_frames = [self._split(index) for index in range(choices)]

    def opening(self) -> bytes:
        """Returns the first events; empty if the format has none."""
        choices = [self._format.opening(index) for index in range(len(self._text_frames))]
        return b"".join(self._event(choice) for choice in choices if choice is not None)

    def text(self, text: str, index: int = 0, logprobs: dict[str, Any] | None = None) -> bytes:
        """Returns an event with text, logprobs or both; empty if there is neither."""
        if logprobs is not None or (text and self._running is not None):
            return self._event(self._format.text_choice(index, text, logprobs))
        before, after = self._text_frames[index]
        return before + orjson.dumps(text) + after if text else b""

    def deltas(self, deltas: Sequence[dict[str, Any]], index: int, logprobs: dict[str, Any] | None) -> bytes:
        """Returns one event per delta of a chat's message. The first one, or an empty one, has the logprobs."""
        parts = [*deltas] or ([{"content": ""}] if logprobs is not None else [])
        return b"".join(
            self._event(
                {"index": index, "delta": delta, "logprobs": None if place else logprobs, "finish_reason": None}
            )
            for place, delta in enumerate(parts)
        )

    def finish(self, finish: str, index: int = 0, stop_string: str | None = None) -> bytes:
        """Returns the event with the finish reason of sample `index`."""
        return self._event(self._format.last_choice(index, finish, stop_string))

    def closing(self, usage: Usage) -> bytes:
        """Returns the last events: usage if the request asked for it, then [DONE]."""
        if not self._include_usage:
            return DONE
        return self._head + b'],"usage":' + orjson.dumps(usage.as_json()) + b"}\n\n" + DONE

    def error(self, body: bytes) -> bytes:
        """Returns an error event for a response whose headers are sent. `body` is OpenAI's error object.

        The connection closes after this event.
        """
        return b"data: " + body + b"\n\n"

    def _split(self, index: int) -> tuple[bytes, bytes]:
        """Splits an example event around its text, the only part that changes from token to token."""
        before, _, after = orjson.dumps(self._format.text_choice(index, "\x00")).partition(b'"\\u0000"')
        return self._head + before, after + self._tail

    def _event(self, choice: dict[str, Any]) -> bytes:
        tail = self._tail if self._running is None else b'],"usage":' + orjson.dumps(self._running.as_json()) + b"}\n\n"
        return self._head + orjson.dumps(choice) + tail
