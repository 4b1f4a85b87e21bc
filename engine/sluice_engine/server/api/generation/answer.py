"""The answer of one sample of a chat: reasoning, text and tool calls, from the text as it arrives."""

import uuid
from dataclasses import dataclass, field
from typing import Any

from sluice_engine.text.reasoning import Parts, ReasoningSplitter
from sluice_engine.tools import ArgumentsDelta, CallBegun, Dialect, Event, ToolChoice, parser_of
from sluice_engine.tools.dialects import Parser


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How an answer is read. `dialect`: None for an answer without calls; `reasons`: it may begin with reasoning."""

    tools: ToolChoice
    dialect: Dialect | None
    reasons: bool
    in_reasoning: bool = False  # the prompt already opened the reasoning

    @property
    def plain(self) -> bool:
        """True if the answer is its text."""
        return self.dialect is None and not self.reasons


@dataclass(slots=True)
class Answer:
    """What has arrived of one answer. `calls` are OpenAI's objects."""

    form: AnswerForm
    reasoning: str = ""
    reasoning_tokens: int = 0
    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    _tokens: int = 0
    _parser: Parser | None = None
    _splitter: ReasoningSplitter | None = None

    def __post_init__(self) -> None:
        """Begins the parsers."""
        form = self.form
        if form.dialect is not None:
            tools = form.tools
            schemas = {tool.name: tool.parameters or {} for tool in tools.tools}
            self._parser = parser_of(
                form.dialect, tools.names, name=tools.name, parallel=tools.parallel, schemas=schemas
            )
        if form.reasons:
            self._splitter = ReasoningSplitter(inside=form.in_reasoning)

    def take(self, text: str, tokens: int, *, last: bool) -> list[dict[str, Any]]:
        """Reads more text, with which the answer has so many tokens; `last` if it is the end. Returns the deltas of
        OpenAI's stream.
        """
        new, self._tokens = tokens - self._tokens, tokens
        reasoning, answer = ("", text) if self._splitter is None else self._split(self._splitter, text, new)
        if last and self._splitter is not None:
            rest = self._splitter.finish()
            reasoning, answer = reasoning + rest.reasoning, answer + rest.answer
        deltas: list[dict[str, Any]] = []
        if reasoning:
            self.reasoning += reasoning
            deltas.append({"reasoning_content": reasoning})
        if self._parser is None:
            return [*deltas, *self._written(answer)]
        events = self._parser.feed(answer) + (self._parser.finish() if last else [])
        for event in events:
            deltas += self._delta(event)
        return deltas

    def _split(self, splitter: ReasoningSplitter, text: str, tokens: int) -> Parts:
        """Counts the tokens up to the end of the reasoning; of a text that goes on behind it, by its characters."""
        was_inside = splitter.inside
        parts = splitter.feed(text)
        if splitter.inside or was_inside or parts.reasoning:  # the reasoning comes first: all so far are its tokens
            self.reasoning_tokens = self._tokens - round(tokens * min(1.0, len(parts.answer) / max(len(text), 1)))
        return parts

    def finish(self, reason: str) -> str:
        """The finish reason: `tool_calls` if the answer ended by itself and has calls."""
        return "tool_calls" if self.calls and reason == "stop" else reason

    def message(self) -> dict[str, Any]:
        """The message of a response that is not streamed."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text, "refusal": None}
        if self.calls:
            message["content"] = self.text or None
            message["tool_calls"] = self.calls
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        return message

    def _delta(self, event: Event) -> list[dict[str, Any]]:
        if isinstance(event, CallBegun):
            call = {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function"}
            self.calls.append({**call, "function": {"name": event.name, "arguments": ""}})
            function = {"name": event.name, "arguments": ""}
            return [{"tool_calls": [{"index": event.index, **call, "function": function}]}]
        if isinstance(event, ArgumentsDelta):
            self.calls[event.index]["function"]["arguments"] += event.text
            return [{"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}]
        return self._written(event.text)

    def _written(self, text: str) -> list[dict[str, Any]]:
        self.text += text
        return [{"content": text}] if text else []
