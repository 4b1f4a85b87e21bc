"""Serializes a response of the Responses API: the object, and the events of a stream in the order that clients expect."""

import json
from collections.abc import Sequence
from typing import Any, Final

import orjson

from sluice_engine.server.api.fields import Object
from sluice_engine.server.api.generation.sse import ChatFormat, Encoder, Head
from sluice_engine.server.api.responses.items import Event, Items
from sluice_engine.server.api.responses.tools import namespaced, offered
from sluice_engine.server.usage import Usage

# Fields of the request that the response repeats, with OpenAI's defaults.
REPEATED: Final[dict[str, Any]] = {
    "instructions": None, "max_output_tokens": None, "parallel_tool_calls": True, "temperature": 1.0, "top_p": 1.0,
    "tools": [], "tool_choice": "auto", "text": {"format": {"type": "text"}}, "reasoning": None, "truncation": "disabled",
    "metadata": {}, "user": None,
}  # fmt: skip


class ResponsesFormat(ChatFormat):
    """The format of the Responses API. `body` is the request's, some fields of which a response repeats."""

    prefix = "resp_"

    def __init__(self, body: Object) -> None:
        self._body = {name: body[name] for name in REPEATED if name in body}

    def complete(self, head: Head, choices: list[dict[str, Any]], usage: Usage) -> bytes:
        """Returns a whole response as JSON."""
        (choice,) = choices
        message = choice["message"]
        calls = [call | {"index": index} for index, call in enumerate(message.get("tool_calls") or ())]
        entries = (choice.get("logprobs") or {}).get("content") or []
        deltas = [{name: message.get(name)} for name in ("reasoning_content", "content") if message.get(name)]
        encoder = ResponseEncoder(self._body, head, usage)
        deltas += [{"tool_calls": [call]} for call in calls]
        encoder.add(deltas, {"content": _of_text(entries, message.get("content") or "", usage)})
        return encoder.complete(choice["finish_reason"], usage)

    def encoder(self, head: Head, choices: int, usage: Usage, *, include_usage: bool, continuous: bool) -> Encoder:
        """Returns the encoder of a streamed response."""
        return ResponseEncoder(self._body, head, usage)


class ResponseEncoder:
    """One response. The methods are those of `generation.sse.EventEncoder`; there is one choice."""

    def __init__(self, body: Object, head: Head, usage: Usage) -> None:
        """`usage` is updated meanwhile."""
        self._usage = usage
        self._seen = 0  # tokens whose logprobs were given
        self._head = {
            "id": head.request_id, "object": "response", "created_at": head.created, "model": head.model, "error": None,
            "previous_response_id": None, "store": False, "background": False,
            **{name: default if body.get(name) is None else body[name] for name, default in REPEATED.items()},
            "tools": offered(body.get("tools") or []),
        }  # fmt: skip
        self._items = Items(namespaced(body.get("tools")))
        self._sequence = 0
        self._finish = "stop"

    def add(self, deltas: Sequence[dict[str, Any]], logprobs: dict[str, Any] | None) -> None:
        """Adds what a response that is not streamed consists of."""
        for _ in self._items.add(deltas, self._of_answer(logprobs)):
            pass

    def complete(self, finish: str, usage: Usage) -> bytes:
        """Returns the whole response, of what was added so far, as JSON."""
        self._end(finish)
        return orjson.dumps(self._response(usage))

    def opening(self) -> bytes:
        """Returns the first events."""
        begun = self._head | {"status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        return b"".join(
            self._event({"type": f"response.{kind}", "response": begun}) for kind in ("created", "in_progress")
        )

    def text(self, text: str, index: int = 0, logprobs: dict[str, Any] | None = None) -> bytes:
        """Returns the events of more text."""
        return self.deltas([{"content": text}], index, logprobs)

    def deltas(self, deltas: Sequence[dict[str, Any]], index: int, logprobs: dict[str, Any] | None) -> bytes:
        """Returns the events of more text, reasoning and calls."""
        return b"".join(map(self._event, self._items.add(deltas, self._of_answer(logprobs))))

    def finish(self, finish: str, index: int = 0, stop_string: str | None = None) -> bytes:
        """Returns the events that end the last item."""
        return b"".join(map(self._event, self._end(finish)))

    def closing(self, usage: Usage) -> bytes:
        """Returns the last event, with the whole response."""
        response = self._response(usage)
        kind = "incomplete" if response["status"] == "incomplete" else "completed"
        return self._event({"type": f"response.{kind}", "response": response})

    def error(self, body: bytes) -> bytes:
        """Returns the event of an error after the headers. `body` is OpenAI's error object."""
        fault = json.loads(body)["error"]
        return self._event({"type": "error", **{name: fault[name] for name in ("code", "message", "param")}})

    def _of_answer(self, logprobs: dict[str, Any] | None) -> list[Any]:
        """Leaves out the tokens of the reasoning, which come first: an item of reasoning has no logprobs."""
        entries: list[Any] = (logprobs or {}).get("content") or []
        first, self._seen = self._seen, self._seen + len(entries)
        return entries[max(0, (self._usage.reasoning or 0) - first) :]

    def _end(self, finish: str) -> list[Event]:
        self._finish = finish
        return list(self._items.close("incomplete" if finish == "length" else "completed"))

    def _response(self, usage: Usage) -> dict[str, Any]:
        cut = self._finish == "length"
        return self._head | {
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": self._items.done,
            "usage": {
                "input_tokens": usage.prompt,
                "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
                "output_tokens": usage.completion,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
                "total_tokens": usage.prompt + usage.completion,
            },
        }

    def _event(self, event: Event) -> bytes:
        self._sequence += 1
        kind = event["type"].encode()
        return b"event: " + kind + b"\ndata: " + orjson.dumps(event | {"sequence_number": self._sequence - 1}) + b"\n\n"


def _of_text(entries: list[Any], text: str, usage: Usage) -> list[Any]:
    """Leaves out the tokens behind an answer's text: those of its calls, which have no logprobs."""
    first = usage.reasoning or 0
    missing = len(text.encode())
    for place in range(first, len(entries)):
        if missing <= 0:
            return entries[:place]
        missing -= len(entries[place]["bytes"])
    return entries
