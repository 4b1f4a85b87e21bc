"""One answer of a request while it grows: tokens in, text and logprobs that may be shown out."""

from dataclasses import dataclass, field

from sluice_engine import ipc
from sluice_engine.request import TokenLogprob
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
        """What the delta allows to be shown. Sets `finish` at a stop string or where the engine ended the answer; tokens
        behind a stop string are not taken, so that an answer does not depend on how many came at once."""
        if self.finish is not None:
            return Piece()
        text = ""
        for place, token in enumerate(delta.token_ids):
            text += self._show(token, delta.logprobs[place] if delta.logprobs else None)
            if self._scanner.stopped:
                break
        if delta.finish is not None and not self._scanner.stopped:
            text += self._passed(self._decoder.flush())
        if self._scanner.stopped:
            self.finish, self.stopped_by_text = "stop", True
        elif delta.finish is not None:
            text += self._scanner.flush()
            self.finish = delta.finish
        self._shown += len(text)
        return Piece(text, self._entries())

    def _show(self, token: int, logprob: TokenLogprob | None) -> str:
        """One more token; the text that may be shown for it."""
        self.tokens += 1
        decoded = self._decoder.feed((token,))
        if logprob is not None:
            self.score += logprob.logprob
            if self._trail is not None:
                self._trail.add(token, len(decoded), logprob)
        return self._passed(decoded)

    def _passed(self, decoded: str) -> str:
        """What the stop strings let through; they do not count before min_tokens."""
        early = self._min_tokens > 0 and self.tokens <= self._min_tokens
        return decoded if early else self._scanner.feed(decoded)

    def _entries(self) -> list[Entry]:
        if self._trail is None:
            return []
        taken = self._trail.take(self._shown)
        return taken + self._trail.last(self._shown, self.stopped_by_text) if self.finish is not None else taken
