"""One answer of a request while it grows: tokens in, text and logprobs that may be shown out."""

from dataclasses import dataclass, field

from sluice_engine import ipc
from sluice_engine.text.stops import StopScanner
from sluice_engine.text.tokenizer import TextModel
from sluice_engine.text.trail import Entry, LogprobTrail


@dataclass(slots=True)
class Piece:
    """What may be shown now."""

    text: str = ""
    logprobs: list[Entry] = field(default_factory=list)


class Choice:
    """Answer `index` of a request; `id` is the engine's name for it. `finish` is set when it is complete."""

    def __init__(
        self, index: int, request_id: str, text: TextModel, stop: tuple[str, ...], min_tokens: int, scored: bool
    ) -> None:
        self.index = index
        self.id = request_id
        self.tokens = 0
        self.finish: str | None = None
        self.stopped_by_text = False
        self.score = 0.0  # the sum of its tokens' logprobs
        self._decoder = text.detokenizer()
        self._scanner = StopScanner(stop)
        self._min_tokens = min_tokens
        self._trail = LogprobTrail() if scored else None
        self._shown = 0

    @property
    def mean_logprob(self) -> float:
        """What best_of ranks by."""
        return self.score / self.tokens if self.tokens else 0.0

    def take(self, delta: ipc.Delta) -> Piece:
        """What the delta allows to be shown. Sets `finish` at a stop string or where the engine ended the answer."""
        if self.finish is not None:
            return Piece()
        decoded = self._decoded(delta)
        early = self.tokens <= self._min_tokens  # a stop string does not count before min_tokens
        text = decoded if early and self._min_tokens else self._scanner.feed(decoded)
        if self._scanner.stopped:
            self.finish, self.stopped_by_text = "stop", True
        elif delta.finish is not None:
            text += self._scanner.flush()
            self.finish = delta.finish
        self._shown += len(text)
        return Piece(text, self._entries())

    def _decoded(self, delta: ipc.Delta) -> str:
        self.tokens += len(delta.token_ids)
        if delta.logprobs:
            self.score += sum(entry.logprob for entry in delta.logprobs)
        if self._trail is None or not delta.logprobs:
            text = self._decoder.feed(delta.token_ids)
        else:
            parts: list[str] = []
            for token, logprob in zip(delta.token_ids, delta.logprobs, strict=True):
                parts.append(self._decoder.feed((token,)))
                self._trail.add(token, len(parts[-1]), logprob)
            text = "".join(parts)
        return text + self._decoder.flush() if delta.finish is not None else text

    def _entries(self) -> list[Entry]:
        if self._trail is None:
            return []
        taken = self._trail.take(self._shown)
        return taken + self._trail.last(self._shown, self.stopped_by_text) if self.finish is not None else taken
