"""A conversation as the API sees it, and the figures of one answer."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sluice.completion_stream import Stream

Message = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the user chose for all answers."""

    model: str | None = None  # None: the first one that the server lists
    system: str | None = None
    max_tokens: int | None = None  # None: the server's maximum
    temperature: float = 0.0


@dataclass(slots=True)
class Conversation:
    """The questions and answers so far."""

    choices: Choices
    turns: list[tuple[str, str]] = field(default_factory=list)

    def request(self, model: str, question: str) -> dict[str, object]:
        """The body of the chat completion that asks `question`."""
        body: dict[str, object] = {
            "model": model,
            "messages": [*self._messages(), {"role": "user", "content": question}],
            "temperature": self.choices.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.choices.max_tokens is not None:
            body["max_tokens"] = self.choices.max_tokens
        return body

    def _messages(self) -> Iterator[Message]:
        if self.choices.system is not None:
            yield {"role": "system", "content": self.choices.system}
        for question, answer in self.turns:
            yield {"role": "user", "content": question}
            yield {"role": "assistant", "content": answer}


def figures(stream: Stream, asked: float, *, stopped: bool) -> str:
    """The speed of an answer in words. `asked` is the time of the request, in `time.perf_counter()` seconds.

    The rate is that of the tokens after the first. A server that reports no usage, as of a stopped answer, sent about one
    token per piece of text.
    """
    if not stream.times:
        return "stopped before the first token" if stopped else "no text"
    tokens = stream.output_tokens or len(stream.times)
    parts = [f"{tokens} token{'s' if tokens != 1 else ''}"]
    seconds = stream.times[-1] - stream.times[0]
    if tokens > 1 and seconds > 0:
        parts.append(f"{_rate((tokens - 1) / seconds)} tokens/s")
    parts.append(f"first after {stream.times[0] - asked:.2f} s")
    if stopped:
        parts.append("stopped")
    elif stream.finish_reason == "length":
        parts.append("ended at the maximum length")
    return ", ".join(parts)


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
