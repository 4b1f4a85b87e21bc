"""Reads one streamed chat completion: arrival time and content of each piece of text, and whether it is complete."""

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

StreamFault = Literal["no_done", "stream_error", "malformed"]

LONGEST_EVENT: Final = 1 << 20  # bytes; a server that sends more without an empty line does not speak SSE


class StreamError(Exception):
    """The stream is not one that a client could use."""

    def __init__(self, kind: StreamFault, message: str) -> None:
        super().__init__(message)
        self.kind: StreamFault = kind


@dataclass(slots=True)
class Stream:
    """The state of a chat completion. Times are `time.perf_counter()` seconds, of pieces of reasoning and of text."""

    pieces: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str | None = None
    done: bool = False

    def matches(self, expect: str) -> bool:
        """True if the text equals `expect`, or is a prefix of it after finish_reason "length"."""
        if self.finish_reason == "length":
            return expect.startswith(self.text)
        return self.text == expect

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self.pieces)


def _unseen(_: str) -> None:
    """Takes a piece and shows nothing."""


async def read(
    chunks: AsyncIterator[bytes],
    stream: Stream,
    on_text: Callable[[str], None] = _unseen,
    on_reasoning: Callable[[str], None] = _unseen,
) -> None:
    """Feed `stream` to the end of `chunks`; `on_text` receives each piece of text as it arrives, and `on_reasoning` each
    piece of a model's reasoning.

    Raises StreamError where the official client would, or if the stream is truncated. Data after `[DONE]` is read and
    ignored, because a connection is reusable only if the body is read to its end.
    """
    waiting = b""
    async for chunk in chunks:
        if stream.done:
            continue
        now = time.perf_counter()
        waiting += chunk
        *events, waiting = waiting.replace(b"\r\n", b"\n").split(b"\n\n")
        for data in _data(events):
            before = len(stream.pieces)
            if reasoning := _take(stream, data, now):
                on_reasoning(reasoning)
            for piece in stream.pieces[before:]:
                on_text(piece)
            if stream.done:
                break
        if len(waiting) > LONGEST_EVENT:
            raise StreamError("malformed", f"an event of more than {LONGEST_EVENT} bytes")
    if not stream.done:
        raise StreamError("no_done", "the stream ended without [DONE]")


def _data(events: list[bytes]) -> Iterator[bytes]:
    for event in events:
        for line in event.split(b"\n"):
            if line.startswith(b"data:"):
                yield line[5:].strip()


def _take(stream: Stream, data: bytes, now: float) -> str:
    """Feeds one event; returns the reasoning in it."""
    found = ""
    if data == b"[DONE]":
        if stream.finish_reason is None:
            raise StreamError("malformed", "[DONE] came before any finish_reason")
        stream.done = True
        return found
    try:
        event = json.loads(data)
        if "error" in event:
            raise StreamError("stream_error", str(event["error"].get("message", event["error"])))
        for choice in event["choices"]:
            if reasoning := choice["delta"].get("reasoning_content"):
                found += reasoning
                stream.times.append(now)
            if text := choice["delta"].get("content"):
                stream.pieces.append(text)
                stream.times.append(now)
            if reason := choice.get("finish_reason"):
                stream.finish_reason = str(reason)
        if usage := event.get("usage"):
            stream.input_tokens = int(usage["prompt_tokens"])
            stream.output_tokens = int(usage["completion_tokens"])
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise StreamError("malformed", f"an event that is no chat completion chunk: {data[:120]!r}") from wrong
    return found
