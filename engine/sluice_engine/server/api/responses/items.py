"""The output items of a response, built from the deltas of a chat's message, and the events of a stream about them."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]  # with its type; the encoder adds the sequence number


@dataclass(slots=True)
class Items:
    """The items so far; the last one may be open. `namespaced`: by name of a call, its name and namespace in the item."""

    namespaced: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    done: list[dict[str, Any]] = field(default_factory=list)
    _open: dict[str, Any] | None = None
    _call: int = -1  # index of the open call

    def add(self, deltas: Sequence[dict[str, Any]], logprobs: Sequence[Any] = ()) -> Iterator[Event]:
        """Adds deltas; yields their events. `logprobs`: those of the tokens of a message's text among them."""
        for delta in deltas:
            if "reasoning_content" in delta:
                yield from self._write("reasoning", delta["reasoning_content"])
            if delta.get("content"):
                yield from self._write("message", delta["content"], logprobs)
                logprobs = ()
            for call in delta.get("tool_calls") or ():
                yield from self._write_call(call)

    def close(self, status: str = "completed") -> Iterator[Event]:
        """Ends the open item; yields its events."""
        item, self._open = self._open, None
        if item is None:
            return
        place = {"item_id": item["id"], "output_index": len(self.done)}
        item["status"] = status
        if item["type"] == "function_call":
            yield {
                "type": "response.function_call_arguments.done",
                **place,
                "name": item["name"],
                "arguments": item["arguments"],
            }
        else:
            (part,) = item["content"]
            kind = "output_text" if item["type"] == "message" else "reasoning_text"
            more: dict[str, Any] = {"logprobs": part["logprobs"]} if kind == "output_text" else {}
            yield {"type": f"response.{kind}.done", **place, "content_index": 0, "text": part["text"], **more}
            yield {"type": "response.content_part.done", **place, "content_index": 0, "part": part}
        yield {"type": "response.output_item.done", "output_index": place["output_index"], "item": item}
        self.done.append(item)

    def _write(self, kind: str, text: str, logprobs: Sequence[Any] = ()) -> Iterator[Event]:
        if self._open is None or self._open["type"] != kind:
            yield from self.close()
            yield from self._begin(kind)
        item = self._open
        if item is None:
            raise RuntimeError("no item is open")
        part = item["content"][0]
        part["text"] += text
        place = {"item_id": item["id"], "output_index": len(self.done), "content_index": 0}
        more: dict[str, Any] = {}
        if kind == "message":
            part["logprobs"] += logprobs
            more = {"logprobs": list(logprobs)}
        name = "output_text" if kind == "message" else "reasoning_text"
        yield {"type": f"response.{name}.delta", **place, "delta": text, **more}

    def _begin(self, kind: str) -> Iterator[Event]:
        if kind == "message":
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item: dict[str, Any] = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant"}
        else:
            part = {"type": "reasoning_text", "text": ""}
            item = {"id": f"rs_{uuid.uuid4().hex}", "type": "reasoning", "summary": []}
        item["status"] = "in_progress"
        index = len(self.done)
        yield {"type": "response.output_item.added", "output_index": index, "item": item | {"content": []}}
        yield {
            "type": "response.content_part.added", "item_id": item["id"], "output_index": index, "content_index": 0,
            "part": dict(part),
        }  # fmt: skip
        self._open = item | {"content": [part | {"logprobs": []} if kind == "message" else part]}

    def _write_call(self, call: dict[str, Any]) -> Iterator[Event]:
        function = call["function"]
        if self._open is None or self._open["type"] != "function_call" or self._call != call["index"]:
            yield from self.close()
            self._call = call["index"]
            self._open = {
                "id": f"fc_{uuid.uuid4().hex}", "type": "function_call", "status": "in_progress",
                "call_id": call["id"], "name": function["name"], "arguments": "",
                **self.namespaced.get(function["name"], {}),
            }  # fmt: skip
            yield {"type": "response.output_item.added", "output_index": len(self.done), "item": dict(self._open)}
        if text := function["arguments"]:
            self._open["arguments"] += text
            place = {"item_id": self._open["id"], "output_index": len(self.done)}
            yield {"type": "response.function_call_arguments.delta", **place, "delta": text}
